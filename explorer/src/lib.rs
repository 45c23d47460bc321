//! The read side.
mod answers;
mod follow;
mod hub;
pub mod index;
mod observe;
pub mod shapes;
pub mod upstream;
pub mod verify;
