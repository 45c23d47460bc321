//! Machines with links of their own on this machine: network namespaces around one bridge, with the
//! kernel's `htb` for bandwidth. Needs root.

use anyhow::{Context, bail};
use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

/// The port of every node.
const PORT: u16 = 26_600;

/// A link's bandwidth in Mbit/s, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSpeed {
    /// From the node.
    pub(super) up: u64,
    /// To the node.
    pub(super) down: u64,
    /// The round trip to the node, in ms.
    pub(super) round_trip_ms: u64,
}

/// Nodes 0 to n − 1. Taken down when dropped.
pub(super) struct Network {
    tag: String,
    nodes: usize,
}

impl Network {
    /// # Errors
    /// If the commands `ip` and `tc` are missing, or not allowed.
    pub(super) fn new(links: &[LinkSpeed]) -> anyhow::Result<Self> {
        remove_leftovers()?;
        let network = Self {
            tag: format!("q{}", std::process::id()),
            nodes: links.len(),
        };
        let hub = network.hub();
        run("ip", &["netns", "add", &hub])?;
        network.inside(&hub, &["ip", "link", "add", "hub0", "type", "bridge"])?;
        network.inside(&hub, &["ip", "link", "set", "hub0", "up"])?;
        for (place, link) in links.iter().enumerate() {
            let (node, port) = (network.name(place), format!("p{place}"));
            run("ip", &["netns", "add", &node])?;
            let peer = ["peer", "name", "eth0", "netns", &node];
            let add = ["ip", "link", "add", &port, "type", "veth"];
            network.inside(&hub, &[&add[..], &peer[..]].concat())?;
            network.inside(&hub, &["ip", "link", "set", &port, "master", "hub0", "up"])?;
            let address = format!("{}/24", address(place).ip());
            network.inside(&node, &["ip", "address", "add", &address, "dev", "eth0"])?;
            network.inside(&node, &["ip", "link", "set", "eth0", "up"])?;
            network.inside(&node, &["ip", "link", "set", "lo", "up"])?;
            network.limit(&node, "eth0", link.up)?;
            network.limit(&hub, &port, link.down)?;
        }
        Ok(network)
    }

    /// A command that runs at a node.
    pub(super) fn at(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(node)]);
        command.arg(program);
        command
    }

    fn limit(&self, space: &str, device: &str, mbit: u64) -> anyhow::Result<()> {
        let rate = format!("{mbit}mbit");
        let root = ["root", "handle", "1:", "htb", "default", "1"];
        let add = ["tc", "qdisc", "add", "dev", device];
        self.inside(space, &[&add[..], &root[..]].concat())?;
        // The default bursts distort shares, and the default quantum is for slow links.
        let class = ["parent", "1:", "classid", "1:1", "htb", "rate", &rate];
        let burst = ["burst", "256k", "cburst", "256k", "quantum", "60000"];
        let add = ["tc", "class", "add", "dev", device];
        self.inside(space, &[&add[..], &class[..], &burst[..]].concat())
    }

    fn inside(&self, space: &str, command: &[&str]) -> anyhow::Result<()> {
        let all = [&["netns", "exec", space][..], command].concat();
        run("ip", &all)
    }

    fn hub(&self) -> String {
        format!("{}hub", self.tag)
    }

    fn name(&self, node: usize) -> String {
        format!("{}n{node}", self.tag)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in 0..self.nodes {
            let _ = run("ip", &["netns", "del", &self.name(node)]);
        }
        let _ = run("ip", &["netns", "del", &self.hub()]);
    }
}

/// Takes down what a run that was killed has left: the namespaces' names have its process number.
fn remove_leftovers() -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(["netns", "list"])
        .output()
        .context("starting `ip`, which this benchmark needs")?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if let Some(process) = maker(name)
            && !Path::new(&format!("/proc/{process}")).exists()
        {
            run("ip", &["netns", "del", name])?;
        }
    }
    Ok(())
}

/// The number of the process that made a namespace of this name.
fn maker(name: &str) -> Option<u32> {
    let rest = name.strip_prefix('q')?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
    let (process, node) = rest.split_at(digits);
    let is_ours = node == "hub"
        || node
            .strip_prefix('n')
            .is_some_and(|place| place.parse::<usize>().is_ok());
    process.parse().ok().filter(|_| is_ours)
}

/// Where a node listens.
pub(super) fn address(node: usize) -> SocketAddr {
    let last = u8::try_from(node + 1).expect("few nodes");
    SocketAddr::from(([10, 77, 0, last], PORT))
}

fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting `{program}`, which this benchmark needs"))?;
    if !output.status.success() {
        bail!(
            "`{program} {}` failed (it needs root): {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_this_benchmark_are_taken_down() {
        assert_eq!(maker("q123n0"), Some(123));
        assert_eq!(maker("q123hub"), Some(123));
        for other in ["q123", "qn0", "quorate-1", "x123n0", "q123n", "q123hubs"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
