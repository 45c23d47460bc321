//! Points from peers: whatever bytes the parts of a quorum or a certificate are, nothing panics,
//! and only the true ones hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quorate_crypto::bls::{
    HashedMessage, PartialSignature, Proof, Scheme, Signers, VoteSecret, deal,
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::sync::OnceLock;

struct Setup {
    scheme: Scheme,
    secrets: Vec<VoteSecret>,
    message: HashedMessage,
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (keys, secrets) = deal(4, &mut rng);
        Setup {
            scheme: Scheme::threshold(&keys).expect("fresh keys"),
            secrets,
            message: HashedMessage::new(b"a vote"),
        }
    })
}

fuzz_target!(|bytes: [u8; 145]| {
    let Setup {
        scheme,
        secrets,
        message,
    } = setup();
    let mut first = [0; 96];
    first.copy_from_slice(&bytes[..96]);
    let mut compressed = [0; 48];
    compressed.copy_from_slice(&bytes[96..144]);
    let true_part = secrets[0].sign(message);
    let holds = scheme.verify_partial(message, 0, &PartialSignature(first));
    assert_eq!(holds, first == true_part.0);
    let parts = [
        (0, PartialSignature(first)),
        (1, secrets[1].sign(message)),
        (3, secrets[3].sign(message)),
    ];
    let certified = scheme.certify(message, &parts, [7; 32]);
    assert_eq!(certified.is_ok(), holds);
    let _ = scheme.verify(message, &Proof::Threshold(compressed));
    if let Some(signers) = Signers::new(4, &[0, 1, u32::from(bytes[144] % 8)]) {
        let proof = Proof::Aggregate {
            signers,
            signature: compressed,
        };
        assert!(!scheme.verify(message, &proof));
    }
});
