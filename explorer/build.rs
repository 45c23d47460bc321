//! Embeds the web page `explorer/page/dist`, built by npm, if it exists. Cargo also builds without
//! it; the explorer then serves a placeholder page.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let page = root.join("page");
    let dist = page.join("dist");
    println!("cargo::rerun-if-changed=build.rs");
    // A nonexistent folder would make cargo run this script every time.
    let watched = if dist.is_dir() { &dist } else { &page };
    println!("cargo::rerun-if-changed={}", watched.display());
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &dist, &mut files);
    }
    files.sort();
    let mut code = String::from("&[\n");
    for (name, path) in &files {
        code.push_str(&format!("    ({name:?}, include_bytes!({path:?})),\n"));
    }
    code.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let file = out.join("page.rs");
    // Removes the old file first, because it may be a hard link shared with a copy of this build
    // folder.
    let _ = fs::remove_file(&file);
    fs::write(file, code).expect("the build's own folder can be written");
}

/// All files below a folder, with paths relative to `root` and `/` as separator.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) {
    let entries = fs::read_dir(folder).expect("the page's folder can be read");
    for entry in entries {
        let path = entry.expect("the page's folder can be read").path();
        if path.is_dir() {
            collect(root, &path, files);
            continue;
        }
        let name = path.strip_prefix(root).expect("it is below the root");
        let name: Vec<_> = name
            .iter()
            .map(|part| part.to_str().expect("names in the page are text"))
            .collect();
        let path = path.to_str().expect("the project's path is text");
        files.push((name.join("/"), path.to_owned()));
    }
}
