//! Work on blocking threads.

/// Runs a slow function on a blocking thread. If the runtime stops meanwhile, this never returns; a
/// panic is propagated to the caller.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => std::future::pending().await,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
