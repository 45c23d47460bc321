//! Machines on which something is wrong: a library before the system's makes clocks and disks of single
//! processes as bad as a test wants.

use super::skipped;
use crate::common::{BINARY, Net};
use quorate_node::localnet::Network;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Reads from files in the folder `TROUBLE` what is wrong: `clock` holds by how many seconds it is ahead,
/// `slow-journal` and `slow-database` how many milliseconds a sync of these takes at least.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static long trouble(const char *what) {
  char path[512], text[32];
  const char *folder = getenv("TROUBLE");
  if (!folder) return 0;
  snprintf(path, sizeof path, "%s/%s", folder, what);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  long value = fgets(text, sizeof text, file) ? atol(text) : 0;
  fclose(file);
  return value;
}
static void wait(int fd) {
  char link[64], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = 0;
  if (strstr(path, "/data/journal/")) usleep(1000 * trouble("slow-journal"));
  if (strstr(path, "/data/db/")) usleep(1000 * trouble("slow-database"));
}
int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  static long looked = -10, ahead;
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(id, at);
  if (id == CLOCK_REALTIME && !done) {
    if (at->tv_sec != looked) { looked = at->tv_sec; ahead = trouble("clock"); }
    at->tv_sec += ahead;
  }
  return done;
}
int fdatasync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  wait(fd);
  return real(fd);
}
int fsync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  wait(fd);
  return real(fd);
}
"#;

/// A folder for each validator that says what is wrong there.
pub struct Troubles {
    folder: PathBuf,
    program: PathBuf,
}

impl Troubles {
    /// None if there is no C compiler.
    pub fn make(folder: &Path) -> Option<Self> {
        let source = folder.join("trouble.c");
        fs::write(&source, LIBRARY).unwrap();
        let library = folder.join("trouble.so");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status();
        if !made.is_ok_and(|status| status.success()) {
            skipped("there is no C compiler, so no clock and no disk goes wrong");
            return None;
        }
        let program = folder.join("quorate");
        let (own, library) = (folder.display(), library.display());
        let script = format!(
            "#!/bin/sh\nplace=$(echo \"$*\" | sed -E 's/.*validator-([0-9]+).*/\\1/')\n\
             export TROUBLE={own}/$place LD_PRELOAD={library}\nexec {BINARY} \"$@\"\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self {
            folder: folder.to_owned(),
            program,
        })
    }

    /// Starts the network's validators again, on machines of which each can get into trouble.
    pub async fn take_over(&self, net: &mut Net) {
        assert!(net.network.stop().is_empty());
        let path = net.path();
        for place in 0..net.network.size() {
            fs::create_dir_all(self.folder.join(place.to_string())).unwrap();
        }
        net.network = Network::start(&self.program, &path, &net.settings).unwrap();
        net.network.wait_until_up().await.unwrap();
    }

    pub fn begin(&self, place: usize, what: &str, amount: i64) {
        let file = self.folder.join(place.to_string()).join(what);
        fs::write(file, amount.to_string()).unwrap();
    }

    pub fn end(&self, place: usize, what: &str) {
        fs::remove_file(self.folder.join(place.to_string()).join(what)).unwrap();
    }
}
