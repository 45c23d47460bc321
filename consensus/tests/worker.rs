//! What checks certificates.

#![allow(missing_docs)]

use quorate_consensus::{Job, JobId, Verdict, Work, Worker};
use quorate_crypto::{
    Digest,
    bls::{AggregateMember, HashedMessage, Proof, Scheme, Signers, VoteSecret, deal},
};
use quorate_types::{Certificate, ChainId, Epoch, Subject, View};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// What a worker says of certificates that came together.
fn verify(worker: &mut Worker, certificates: Vec<Certificate>) -> Vec<bool> {
    let work = Work::VerifyCertificates(certificates);
    let job = Job { id: JobId(1), work };
    match worker.run(vec![job], [4; 32]).pop() {
        Some((_, Verdict::Verified(valid))) => valid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_several_certificates_each_is_verified() {
    let (keys, secrets) = deal(4, ChaCha8Rng::from_seed([1; 32]));
    let scheme = Scheme::threshold(&keys).expect("fresh keys");
    let chain = ChainId(Digest([2; 32]));
    let certificate = |view: u64, signed: u64| {
        let subject = |view| Subject::nullify(Epoch(0), View(view));
        let message = HashedMessage::new(&subject(signed).signed_bytes(&chain));
        let parts: Vec<_> = (0..3)
            .map(|signer| (signer, secrets[signer as usize].sign(&message)))
            .collect();
        let proof = scheme.certify(&message, &parts, [3; 32]);
        Certificate {
            subject: subject(view),
            proof: proof.expect("a quorum of valid votes"),
        }
    };
    let mut worker = Worker::new(chain, scheme.clone());
    let mut verdicts = |certificates| verify(&mut worker, certificates);
    let (first, second) = (certificate(1, 1), certificate(2, 2));
    let forged = certificate(3, 1);
    assert_eq!(verdicts(vec![first.clone(), second.clone()]), [true, true]);
    assert_eq!(verdicts(vec![first, forged, second]), [true, false, true]);
}

/// With one vote of its own, which is a valid sum of one, a validator has no certificate.
#[test]
fn an_aggregate_of_fewer_than_a_quorum_is_no_certificate() {
    let mut rng = ChaCha8Rng::from_seed([1; 32]);
    let secrets: Vec<_> = (0..4).map(|_| VoteSecret::random(&mut rng)).collect();
    let members: Vec<_> = secrets
        .iter()
        .map(|secret| AggregateMember {
            identity: [0; 32],
            key: secret.public_key(),
            possession: secret.prove_possession("chain", &[0; 32]),
        })
        .collect();
    let scheme = Scheme::aggregate("chain", &members).expect("fresh keys");
    let chain = ChainId(Digest([2; 32]));
    let subject = Subject::nullify(Epoch(0), View(1));
    let message = HashedMessage::new(&subject.signed_bytes(&chain));
    let vote = secrets[1].sign(&message);
    let short = Certificate {
        subject,
        proof: Proof::Aggregate {
            signers: Signers::new(4, &[1]).expect("a validator"),
            signature: vote.to_compressed().expect("a signature is a point"),
        },
    };
    let parts: Vec<_> = (0..3)
        .map(|signer| (signer, secrets[signer as usize].sign(&message)))
        .collect();
    let proof = scheme.certify(&message, &parts, [3; 32]);
    let whole = Certificate {
        subject,
        proof: proof.expect("a quorum of valid votes"),
    };
    let mut worker = Worker::new(chain, scheme);
    assert_eq!(verify(&mut worker, vec![short.clone()]), [false]);
    assert_eq!(verify(&mut worker, vec![whole, short]), [true, false]);
}
