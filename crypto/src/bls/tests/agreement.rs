

#[test]
fn certificates_made_together_equal_those_made_alone_at_half_the_checks() {
    use crate::bls::{CheckCount, HashedMessage, Scheme, deal};
    let (keys, secrets) = deal(7, rand::rng());
    let scheme = Scheme::threshold(&keys).unwrap();
    let messages = [b"finalize 1", b"notarize 2"].map(|text| HashedMessage::new(text));
    let parts = messages.each_ref().map(|message| {
        (0..5_u32)
            .map(|i| (i, secrets[i as usize].sign(message)))
            .collect::<Vec<_>>()
    });
    let batches = [
        (&messages[0], parts[0].as_slice()),
        (&messages[1], parts[1].as_slice()),
    ];
    let mut checks = CheckCount::default();
    let together = scheme.certify_many(&batches, [3; 32], &mut checks);
    assert_eq!(checks.pairing_checks, 1);
    for ((message, parts), proof) in batches.iter().zip(together) {
        assert_eq!(proof, scheme.certify(message, parts, [4; 32]));
    }
    // A bad part in one batch spoils only that one.
    let mut spoiled = parts[1].clone();
    spoiled[2].1 = parts[0][2].1;
    let batches = [(&messages[0], parts[0].as_slice()), (&messages[1], &spoiled)];
    let results = scheme.certify_many(&batches, [5; 32], &mut checks);
    assert!(results[0].is_ok());
    assert!(matches!(
        &results[1],
        Err(crate::bls::CertifyError::Invalid { bad, .. }) if *bad == [2]
    ));
}
