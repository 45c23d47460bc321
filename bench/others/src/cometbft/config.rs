//! CometBFT's configuration: as its `testnet` command writes it, with a few settings changed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use quorate_files::read_text;
use toml::{Table, Value};

use super::Ports;

/// Most bytes of a configuration file.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Changes the file of validator `index` in place.
pub(super) fn adapt(path: &Path, index: usize, ports: &Ports, quick: bool) -> Result<()> {
    let shown = path.display();
    let text = read_text(path, MAX_CONFIG_BYTES)?;
    let changed = adapted(&text, index, ports, quick).with_context(|| format!("in {shown}"))?;
    fs::write(path, changed).with_context(|| format!("cannot write {shown}"))
}

fn adapted(text: &str, index: usize, ports: &Ports, quick: bool) -> Result<String> {
    let mut config: Table = text.parse().context("this is no TOML")?;
    let peers = peers(get(&config, "p2p", "persistent_peers")?, index, ports)?;
    let listen = |port: usize| Value::from(format!("tcp://127.0.0.1:{port}"));
    let mut changes = vec![
        ("rpc", "laddr", listen(ports.rpc(index))),
        ("p2p", "laddr", listen(ports.p2p(index))),
        ("p2p", "persistent_peers", Value::from(peers)),
        ("consensus", "timeout_commit", Value::from("0s")),
        ("consensus", "skip_timeout_commit", Value::from(true)),
    ];
    if quick {
        changes.push((
            "consensus",
            "peer_gossip_sleep_duration",
            Value::from("5ms"),
        ));
    }
    for (section, key, value) in changes {
        // A setting that is not there would be one that this release does not know.
        get(&config, section, key)?;
        if let Some(table) = config.get_mut(section).and_then(Value::as_table_mut) {
            table.insert(key.to_owned(), value);
        }
    }
    config.insert("proxy_app".to_owned(), Value::from("persistent_kvstore"));
    toml::to_string(&config).context("cannot write TOML")
}

fn get<'a>(config: &'a Table, section: &str, key: &str) -> Result<&'a Value> {
    config
        .get(section)
        .and_then(|section| section.get(key))
        .with_context(|| format!("there is no {section}.{key}"))
}

/// From `ID@HOST:PORT` of all, in order, to those of the others at their true ports.
fn peers(all: &Value, index: usize, ports: &Ports) -> Result<String> {
    let all = all.as_str().context("p2p.persistent_peers is no string")?;
    let peers = all
        .split(',')
        .enumerate()
        .map(|(peer, address)| {
            let (id, _) = address
                .split_once('@')
                .with_context(|| format!("{address:?} is no peer"))?;
            let known = id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            ensure!(known, "{id:?} is no node's id");
            Ok((peer, format!("{id}@127.0.0.1:{}", ports.p2p(peer))))
        })
        .collect::<Result<Vec<_>>>()?;
    ensure!(index < peers.len(), "only {} peers are told", peers.len());
    let others = peers.into_iter().filter(|(peer, _)| *peer != index);
    Ok(others
        .map(|(_, address)| address)
        .collect::<Vec<_>>()
        .join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = r#"
version = "0.0.1"
proxy_app = "tcp://127.0.0.1:26658"
[rpc]
laddr = "tcp://127.0.0.1:26657"
max_open_connections = 900
[p2p]
laddr = "tcp://0.0.0.0:26656"
persistent_peers = "AA@127.0.0.1:26656,BB@127.0.0.1:26656,CC@127.0.0.1:26656"
[[p2p.scaler.overrides]]
reactor = "MEMPOOL"
[consensus]
timeout_propose = "3s"
timeout_commit = "1s"
skip_timeout_commit = false
peer_gossip_sleep_duration = "100ms"
"#;

    fn shipped() -> String {
        ["AA", "BB", "CC"]
            .iter()
            .fold(SHIPPED.to_owned(), |text, id| {
                text.replace(
                    &format!("{id}@"),
                    &format!("{}@", id.to_lowercase().repeat(20)),
                )
            })
    }

    fn ports() -> Ports {
        Ports::new(30_000, 3).expect("there is room")
    }

    #[test]
    fn only_the_named_settings_change() {
        let changed = adapted(&shipped(), 1, &ports(), false).expect("it is as shipped");
        let changed: Table = changed.parse().expect("it is TOML");
        let mut expected: Table = shipped().parse().expect("it is TOML");
        expected["proxy_app"] = "persistent_kvstore".into();
        expected["rpc"]["laddr"] = "tcp://127.0.0.1:30002".into();
        expected["p2p"]["laddr"] = "tcp://127.0.0.1:30003".into();
        let (first, last) = ("aa".repeat(20), "cc".repeat(20));
        expected["p2p"]["persistent_peers"] =
            format!("{first}@127.0.0.1:30001,{last}@127.0.0.1:30005").into();
        expected["consensus"]["timeout_commit"] = "0s".into();
        expected["consensus"]["skip_timeout_commit"] = true.into();
        assert_eq!(changed, expected);

        let quick = adapted(&shipped(), 1, &ports(), true).expect("it is as shipped");
        expected["consensus"]["peer_gossip_sleep_duration"] = "5ms".into();
        assert_eq!(quick.parse::<Table>().expect("it is TOML"), expected);
    }

    #[test]
    fn one_validator_has_no_peers() {
        let text = shipped().replace(
            &format!(
                ",{}@127.0.0.1:26656,{}@127.0.0.1:26656",
                "bb".repeat(20),
                "cc".repeat(20)
            ),
            "",
        );
        let changed: Table = adapted(&text, 0, &ports(), false)
            .expect("it is as shipped")
            .parse()
            .expect("it is TOML");
        assert_eq!(changed["p2p"]["persistent_peers"].as_str(), Some(""));
    }

    #[test]
    fn settings_that_this_release_does_not_have_are_an_error() {
        for (line, name) in [
            ("timeout_commit = \"1s\"\nskip", "consensus.timeout_commit"),
            ("max_open_connections = 900\n[p2p]\nladdr", "p2p.laddr"),
        ] {
            let text = shipped().replace(
                line,
                &line
                    .replace("timeout_commit =", "pause =")
                    .replace("\nladdr", "\nlisten"),
            );
            let error = adapted(&text, 0, &ports(), false).expect_err("one is missing");
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn odd_peers_are_an_error() {
        for (from, to) in [("@127", "#127"), ("aaaa", "zzzz"), ("bb", "")] {
            let text = shipped().replace(from, to);
            assert!(adapted(&text, 0, &ports(), false).is_err(), "{from} {to}");
        }
        let error = adapted(&shipped(), 3, &ports(), false).expect_err("there are three");
        assert!(error.to_string().contains("only 3"), "{error}");
    }
}
