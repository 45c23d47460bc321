//! What validators and clients say to each other, on its way.

use super::*;

impl Simulation {
    /// Sends what a host has said.
    pub(super) fn drain(&mut self, host: usize) -> Result<(), String> {
        let sent = std::mem::take(&mut lock(&self.hosts[host].outbox).sent);
        let news = self.hosts[host].disk.news();
        let honest = self.keeps_protocol(host);
        if honest {
            for (path, offset, bytes) in &news {
                self.checker.durable(host, path, *offset, bytes);
            }
        }
        for Sent {
            at,
            lane,
            to,
            bytes,
        } in sent
        {
            let receivers = self.receivers(host, &to);
            if let Some(recorder) = &mut self.recorder {
                recorder.sent(host, at, &bytes, receivers.len());
            }
            if lane == Lane::Votes {
                self.hosts[host].has_voted = true;
            }
            if honest {
                self.sync_sends(host, &to, &bytes);
                if self.checker.sent(host, &bytes)? {
                    self.votes_again(host, at);
                }
            }
            if self.adversaries.contains_key(&host) {
                let facts = self.facts(host);
                let adversary = self.adversaries.get_mut(&host).expect("just seen");
                for parcel in adversary.pass(&facts, lane, &receivers, &bytes) {
                    let bytes = Bytes::from(parcel.bytes);
                    self.carry(host, parcel.to, lane, bytes, at.after(parcel.delay));
                }
            } else {
                for receiver in receivers {
                    self.carry(host, receiver, lane, bytes.clone(), at);
                }
            }
        }
        Ok(())
    }

    pub(super) fn facts(&self, host: usize) -> Facts {
        let (epoch, view) = match &self.hosts[host].running {
            Some(running) => {
                let engine = running.machine.replica.engine();
                (engine.epoch(), engine.view())
            }
            None => self.highest,
        };
        Facts {
            now_ms: self.now.0 / 1_000,
            epoch,
            view,
            leader_timeout: self.scenario.timing.leader_timeout,
            free: self.free_time(),
            second: host >= self.scenario.validators,
        }
    }

    fn free_time(&self) -> Duration {
        let honest = self
            .hosts
            .iter()
            .enumerate()
            .filter(|(host, _)| !self.adversaries.contains_key(host));
        let running = honest.filter_map(|(_, host)| host.running.as_ref());
        let free = running.map(|running| running.machine.replica.engine().free_time());
        free.min().unwrap_or_default()
    }

    pub(super) fn spontaneous(&mut self, host: usize) {
        let Some(running) = &self.hosts[host].running else {
            return;
        };
        let snapshot = running.machine.snapshots.newest();
        let facts = self.facts(host);
        let Some(adversary) = self.adversaries.get_mut(&host) else {
            return;
        };
        if let Some(snapshot) = snapshot {
            adversary.has_snapshot(&snapshot.proof);
        }
        for parcel in adversary.spontaneous(&facts) {
            let bytes = Bytes::from(parcel.bytes);
            self.carry(host, parcel.to, parcel.lane, bytes, self.now);
        }
    }

    pub(super) fn receivers(&self, host: usize, to: &To) -> Vec<usize> {
        let own = self.hosts[host].validator;
        let place = |identity: &Identity| {
            let place = self.chain.committee.place(identity)?;
            Some(place.as_usize())
        };
        let receivers: Vec<usize> = match to {
            To::All => self.scenario.all(),
            To::Followers => Vec::new(),
            To::One(identity) => place(identity).into_iter().collect(),
            To::Some(identities) => identities.iter().filter_map(place).collect(),
        };
        receivers.into_iter().filter(|v| *v != own).collect()
    }

    /// Whether a validator refuses a link.
    pub(super) fn refuses(&self, host: usize, other: usize) -> bool {
        let place = ValidatorIndex(other as u32);
        let Some(identity) = self.chain.committee.identity(place) else {
            return false;
        };
        let outbox = lock(&self.hosts[host].outbox);
        outbox.cuts.get(&identity).is_some_and(|u| *u > self.now)
    }

    /// Gives a frame to the network, for all hosts of a validator.
    pub(super) fn carry(&mut self, from: usize, to: usize, lane: Lane, bytes: Bytes, at: Moment) {
        if self.refuses(from, to) || !self.network.is_linked(self.hosts[from].validator, to) {
            return;
        }
        for target in self.hosts_of(&[to]) {
            if self.hosts[target].validator == self.hosts[from].validator
                || !self.hear_each_other(from, target, &bytes)
            {
                continue;
            }
            let arrivals = self
                .network
                .carry(&mut self.rng, at, (from, target), lane, bytes.len());
            for arrival in arrivals {
                let arrives_us = arrival.0;
                let sent = What::Sent {
                    to: target,
                    arrives_us,
                };
                self.trace.line(self.now, from, sent, || describe(&bytes));
                self.plan_at(
                    arrival,
                    Event::Deliver {
                        to: target,
                        from,
                        lane,
                        bytes: bytes.clone(),
                    },
                );
            }
        }
    }

    /// Whether the views' own partition lets a frame through.
    pub(super) fn hear_each_other(&self, from: usize, to: usize, bytes: &Bytes) -> bool {
        let Some(view_groups) = &self.view_groups else {
            return true;
        };
        let Ok(Frame(messages)) = Frame::decode(Copying(bytes.as_ref())) else {
            return true;
        };
        let Some(view) = messages.iter().filter_map(view_of).max() else {
            return true;
        };
        // A partition that never ended would end the view's life, not the protocol's.
        let began = self.view_began.get(&view).copied().unwrap_or(self.now);
        if self.now.since(began) > self.scenario.timing.view_timeout * 5 / 4 {
            return true;
        }
        let index = usize::try_from(view.0.saturating_sub(1)).unwrap_or(usize::MAX);
        view_groups.get(index).is_none_or(|groups| {
            let mut groups = groups.iter();
            groups.any(|group| group.contains(&from) && group.contains(&to))
        })
    }

    pub(super) fn deliver(
        &mut self,
        to: usize,
        from: usize,
        lane: Lane,
        bytes: Bytes,
    ) -> Result<(), String> {
        let sender = self.hosts[from].validator;
        if self.hosts[to].syncing.is_some() && !self.refuses(to, sender) {
            return self.sync_receives(to, sender, lane, bytes);
        }
        if self.hosts[to].running.is_none() || self.refuses(to, sender) {
            return Ok(());
        }
        self.trace
            .note(self.now, &[&to.to_be_bytes(), &from.to_be_bytes(), &bytes]);
        if let Some(adversary) = self.adversaries.get_mut(&to) {
            adversary.overhears(lane, &bytes);
        } else if lane == Lane::Votes
            && self.adversaries.contains_key(&from)
            && let Some(running) = &self.hosts[to].running
        {
            let engine = running.machine.replica.engine();
            let at = (engine.epoch(), engine.view());
            let blocked = engine.blocked();
            let place = ValidatorIndex(sender as u32);
            let heard = !engine.is_muted(place) && running.machine.inlet.listens_to(place);
            if heard && !blocked.iter().any(|(held, _)| held.as_usize() == sender) {
                self.checker.heard(to, sender, at, &bytes);
            }
        }
        let place = ValidatorIndex(sender as u32);
        let identity = self.chain.committee.identity(place).expect("a member");
        self.hosts[to].clock.set(self.now);
        if let Some(running) = &self.hosts[to].running {
            running.machine.inlet.receive(identity, lane, bytes);
        }
        self.coverage.frames += 1;
        self.plan_parts(to);
        Ok(())
    }
}

/// The view that a message belongs to, if it belongs to one.
fn view_of(message: &Message) -> Option<View> {
    match message {
        Message::Proposal(proposal) => Some(proposal.view),
        Message::Vote(vote) => Some(vote.subject.view),
        Message::Certificate(certificate) => Some(certificate.subject.view),
        _ => None,
    }
}

/// A frame in a few words.
fn describe(bytes: &[u8]) -> String {
    let Ok(Frame(messages)) = Frame::decode(Copying(bytes)) else {
        return format!("{} bytes that are no frame", bytes.len());
    };
    let words = messages.iter().map(|message| match message {
        Message::Vote(vote) => format!("{:?}", vote.subject),
        Message::Certificate(certificate) => format!("{:?}", certificate.subject),
        Message::Proposal(proposal) => format!(
            "proposal {:?} {} on {}",
            proposal.view,
            proposal.block.id().short(),
            proposal.block.header().parent.short()
        ),
        other => other.name().to_owned(),
    });
    words.collect::<Vec<_>>().join(", ")
}
