//! Key files: written files can be read back, and everything else is refused.

use super::*;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
}

#[test]
fn a_key_survives_its_file_which_only_the_owner_can_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new/deep").join(IDENTITY_FILE);
    let secret = generate_identity();
    save_secret(&path, &secret.to_bytes(), Protection::Plain).expect("written");
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let read = load_identity(&path, &KeyAccess::plain()).expect("read");
    assert_eq!(read.identity(), secret.identity());
}

#[test]
fn two_generated_identities_differ() {
    assert_ne!(
        generate_identity().identity(),
        generate_identity().identity()
    );
}

#[test]
fn an_existing_file_is_never_written_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(IDENTITY_FILE);
    save_secret(&path, &[1; 32], Protection::Plain).expect("written");
    let again = save_secret(&path, &[2; 32], Protection::Plain);
    assert!(matches!(again, Err(KeyFileError::Exists { .. })));
    assert_eq!(
        *load_key(&path, &KeyAccess::plain()).expect("read").1,
        [1; 32]
    );
}

#[test]
fn a_mode_wider_than_0600_is_refused_with_its_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(IDENTITY_FILE);
    save_secret(&path, &[1; 32], Protection::Plain).expect("written");
    for mode in [0o640, 0o604, 0o660, 0o700] {
        set_mode(&path, mode);
        let message = load_identity(&path, &KeyAccess::plain())
            .err()
            .expect("refused")
            .to_string();
        let remedy = format!("chmod 600 {}", path.display());
        assert!(message.contains(&remedy), "{message}");
        assert!(message.contains(&format!("{mode:04o}")), "{message}");
    }
    for mode in [0o600, 0o400] {
        set_mode(&path, mode);
        assert!(load_identity(&path, &KeyAccess::plain()).is_ok());
    }
}

#[test]
fn other_content_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(IDENTITY_FILE);
    let digits = "ab".repeat(32);
    let wrong = [
        String::new(),
        digits[1..].to_string(),
        format!("{digits}ab"),
        format!("{digits} {digits}"),
        "zz".repeat(32),
        " ".repeat(1 << 20),
    ];
    for content in wrong {
        fs::write(&path, &content).expect("own file");
        set_mode(&path, 0o600);
        let result = load_key(&path, &KeyAccess::plain());
        assert!(matches!(result, Err(KeyFileError::Content { .. })));
    }
    fs::write(&path, format!("  {digits}\r\n")).expect("own file");
    assert_eq!(
        *load_key(&path, &KeyAccess::plain())
            .expect("white space is no matter")
            .1,
        [0xab; 32]
    );
}

#[test]
fn zero_is_no_vote_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(VOTE_FILE);
    save_key(&path, KeyKind::Vote, &[0; 32], Protection::Plain).expect("written");
    let result = load_vote_secret(&path, &KeyAccess::plain());
    assert!(matches!(result, Err(KeyFileError::VoteSecret { .. })));
}

fn access(passphrase: &str) -> KeyAccess {
    KeyAccess {
        passphrase: PassphraseSource::given(Passphrase::new(passphrase).expect("not empty")),
        allow_plain: false,
    }
}

#[test]
fn an_encrypted_key_opens_with_its_passphrase_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(IDENTITY_FILE);
    let passphrase = Passphrase::new("correct horse").expect("not empty");
    save_secret(&path, &[5; 32], Protection::Encrypted(&passphrase)).expect("written");
    assert!(is_encrypted(&path).expect("there"));
    let content = fs::read(&path).expect("there");
    assert!(!content.windows(8).any(|w| w == b"05050505"));
    let (_, opened) = load_key(&path, &access("correct horse")).expect("opened");
    assert_eq!(*opened, [5; 32]);
    let wrong = load_key(&path, &access("battery staple"));
    assert!(matches!(wrong, Err(KeyFileError::Decrypt { .. })));
    let none = load_key(&path, &KeyAccess::plain());
    assert!(matches!(none, Err(KeyFileError::Passphrase { .. })));
    for cut in [30, content.len() - 1] {
        fs::write(&path, &content[..cut]).expect("own file");
        let damaged = load_key(&path, &access("correct horse"));
        assert!(matches!(damaged, Err(KeyFileError::Decrypt { .. })));
    }
}

#[test]
fn a_plain_key_is_refused_unless_allowed_and_can_be_converted_both_ways() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(VOTE_FILE);
    save_key(&path, KeyKind::Vote, &[7; 32], Protection::Plain).expect("written");
    let refused = load_key(&path, &access("p")).expect_err("plain");
    let message = refused.to_string();
    assert!(
        message.contains("quorate keys encrypt") && message.contains("--allow-plain-keys"),
        "{message}"
    );
    let passphrase = Passphrase::new("p").expect("not empty");
    replace_secret(
        &path,
        Some(KeyKind::Vote),
        &[7; 32],
        Protection::Encrypted(&passphrase),
    )
    .expect("replaced");
    assert!(is_encrypted(&path).expect("there"));
    let (kind, opened) = load_key(&path, &access("p")).expect("opened");
    assert_eq!((kind, *opened), (Some(KeyKind::Vote), [7; 32]));
    replace_secret(&path, Some(KeyKind::Vote), &[7; 32], Protection::Plain).expect("replaced");
    assert_eq!(
        *load_key(&path, &KeyAccess::plain()).expect("read").1,
        [7; 32]
    );
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_key_of_another_kind_is_told_and_one_of_an_earlier_version_is_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("some.key");
    save_key(&path, KeyKind::Vote, &[7; 32], Protection::Plain).expect("written");
    let refused = load_identity(&path, &KeyAccess::plain());
    let message = refused.err().expect("a vote key").to_string();
    assert!(
        message.contains("some.key") && message.contains("holds a vote key, and an identity key"),
        "{message}"
    );
    assert!(load_vote_secret(&path, &KeyAccess::plain()).is_ok());
    let other = directory.path().join("other.key");
    save_secret(&other, &[7; 32], Protection::Plain).expect("written");
    let refused = load_vote_secret(&other, &KeyAccess::plain());
    assert!(matches!(refused, Err(KeyFileError::Kind { .. })));
    fs::write(&other, "07".repeat(32)).expect("own file");
    assert!(load_vote_secret(&other, &KeyAccess::plain()).is_ok());
    assert!(load_identity(&other, &KeyAccess::plain()).is_ok());
}

#[test]
fn an_installed_key_is_whole_and_an_erased_one_is_gone_whenever_a_crash_came() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(SEED_FILE);
    // What a crash leaves before the key has its name.
    fs::write(directory.path().join("ceremony.key.new"), "half").expect("own folder");
    install_key(&path, KeyKind::Ceremony, &[3; 32], Protection::Plain).expect("written");
    let again = install_key(&path, KeyKind::Ceremony, &[4; 32], Protection::Plain);
    assert!(matches!(again, Err(KeyFileError::Exists { .. })));
    let access = KeyAccess::plain();
    assert_eq!(*load_seed(&path, &access).expect("read"), [3; 32]);
    let as_vote = load_vote_secret(&path, &access).err().expect("refused");
    assert!(matches!(as_vote, KeyFileError::Kind { .. }), "{as_vote}");
    erase_key(&path).expect("erased");
    assert_eq!(fs::read_dir(&directory).expect("there").count(), 0);
    // What a crash leaves while it is erased.
    fs::write(directory.path().join("ceremony.erased"), "half").expect("own folder");
    erase_key(&path).expect("erased");
    assert_eq!(fs::read_dir(&directory).expect("there").count(), 0);
}
