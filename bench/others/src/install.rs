//! Getting a system's program: `go install` of a pinned release into a folder of its own.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process::finish;

/// How long compiling may take.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// A pinned release of a Go program.
#[derive(Debug)]
pub(crate) struct Release {
    /// The system's name, for folders and errors.
    pub(crate) name: &'static str,
    /// The module that holds it.
    pub(crate) module: &'static str,
    /// The release of the module.
    pub(crate) version: &'static str,
    /// The program's package in the module.
    pub(crate) package: &'static str,
    /// The program's file name.
    pub(crate) program: &'static str,
    /// The oldest Go that compiles it.
    pub(crate) go: &'static str,
}

impl Release {
    /// The program, which must be installed.
    pub(crate) fn installed(&self, cache: &Path) -> Result<PathBuf> {
        let program = self.path(cache)?;
        ensure!(
            program.is_file(),
            "{} is not installed: {} is missing",
            self.name,
            program.display()
        );
        Ok(program)
    }

    /// The program, installed now if need be.
    pub(crate) fn install(&self, cache: &Path) -> Result<PathBuf> {
        self.install_with("go", cache)
    }

    fn install_with(&self, go: &str, cache: &Path) -> Result<PathBuf> {
        if let Ok(program) = self.installed(cache) {
            return Ok(program);
        }
        self.look_for(go)?;
        let folder = self.folder(cache)?;
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;

        // What is half written never has the final name.
        let part = folder.join("bin.part");
        let mut command = Command::new(go);
        command
            .arg("install")
            .arg(format!("{}/{}@{}", self.module, self.package, self.version))
            .env("GOBIN", &part)
            .env("GOWORK", "off")
            .current_dir(&folder);
        finish("install", &folder, command, LIMIT)
            .with_context(|| format!("cannot install {} {}", self.name, self.version))?;
        let bin = folder.join("bin");
        if bin.exists() {
            fs::remove_dir_all(&bin).with_context(|| format!("cannot remove {}", bin.display()))?;
        }
        fs::rename(&part, &bin).with_context(|| format!("cannot create {}", bin.display()))?;
        self.installed(cache)
    }

    fn look_for(&self, go: &str) -> Result<()> {
        let remedy = || {
            format!(
                "{} is compiled with Go: install Go {} or later, or leave this system out with --system",
                self.name, self.go
            )
        };
        match Command::new(go).arg("version").output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => bail!("`{go} version` fails ({}). {}", output.status, remedy()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("`{go}` is not there. {}", remedy())
            }
            Err(error) => Err(error).with_context(remedy),
        }
    }

    fn folder(&self, cache: &Path) -> Result<PathBuf> {
        // The compiler is started elsewhere and takes no relative paths.
        let cache =
            absolute(cache).with_context(|| format!("{} is no folder's name", cache.display()))?;
        Ok(cache.join(format!("{}-{}", self.name, self.version)))
    }

    fn path(&self, cache: &Path) -> Result<PathBuf> {
        Ok(self.folder(cache)?.join("bin").join(self.program))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const RELEASE: Release = Release {
        name: "toy",
        module: "example.org/toy",
        version: "v1.2.3",
        package: "cmd/toy",
        program: "toy",
        go: "1.22",
    };

    /// A compiler that does as the script says when it is to install.
    fn compiler(folder: &Path, script: &str) -> String {
        let path = folder.join("go");
        let text = format!("#!/bin/sh\n[ \"$1\" = version ] && exit 0\n{script}\n");
        fs::write(&path, text).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path.to_str().expect("it is text").to_owned()
    }

    #[test]
    fn a_missing_compiler_names_the_remedy() {
        let cache = tempfile::tempdir().expect("a folder");
        let error = RELEASE
            .install_with("/nowhere/go", cache.path())
            .expect_err("there is none")
            .to_string();
        assert!(error.contains("`/nowhere/go` is not there"), "{error}");
        assert!(error.contains("install Go 1.22 or later"), "{error}");
        assert!(error.contains("--system"), "{error}");
    }

    #[test]
    fn the_pinned_release_is_installed_once() {
        let cache = tempfile::tempdir().expect("a folder");
        let go = compiler(cache.path(), "mkdir -p $GOBIN && echo $@ > $GOBIN/toy");
        let missing = RELEASE.installed(cache.path()).expect_err("not yet");
        assert!(missing.to_string().contains("toy is not installed"));

        let program = RELEASE.install_with(&go, cache.path()).expect("it works");
        assert!(program.ends_with("toy-v1.2.3/bin/toy"), "{program:?}");
        let text = fs::read_to_string(&program).expect("it is there");
        assert_eq!(text.trim(), "install example.org/toy/cmd/toy@v1.2.3");

        let again = RELEASE
            .install_with("/nowhere/go", cache.path())
            .expect("no compiler is needed");
        assert_eq!(again, program);
    }

    #[test]
    fn a_compiler_that_fails_shows_what_it_said_and_leaves_nothing() {
        let cache = tempfile::tempdir().expect("a folder");
        let go = compiler(cache.path(), "echo no such module >&2; exit 1");
        let error = RELEASE
            .install_with(&go, cache.path())
            .expect_err("it fails");
        let error = format!("{error:#}");
        assert!(error.contains("cannot install toy v1.2.3"), "{error}");
        assert!(error.contains("no such module"), "{error}");
        assert!(RELEASE.installed(cache.path()).is_err());
    }
}
