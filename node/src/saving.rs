//! Writing the verified parts of a state while the next ones are verified.

use anyhow::anyhow;
use quorate_machine::sync::Saver;
use quorate_storage::store::{Save, Store, StoreError};
use std::thread::{self, JoinHandle};
use tracing::error;

/// Writes on a thread of its own, so that the disk and the processor work at the same time.
pub struct SaveBeside {
    store: Store,
    under_way: Option<JoinHandle<Result<(), StoreError>>>,
}

impl SaveBeside {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            under_way: None,
        }
    }
}

impl Saver for SaveBeside {
    fn begin(&mut self, save: Save) -> anyhow::Result<()> {
        self.wait()?;
        let store = self.store.clone();
        let write = move || store.write_save(&save);
        let thread = thread::Builder::new().name("save".into()).spawn(write)?;
        self.under_way = Some(thread);
        Ok(())
    }

    fn is_busy(&self) -> bool {
        let under_way = self.under_way.as_ref();
        under_way.is_some_and(|thread| !thread.is_finished())
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let Some(thread) = self.under_way.take() else {
            return Ok(());
        };
        let ended = thread.join();
        Ok(ended.map_err(|_| anyhow!("the thread that writes the state has panicked"))??)
    }
}

impl Drop for SaveBeside {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            error!("the state was not written: {error:#}");
        }
    }
}
