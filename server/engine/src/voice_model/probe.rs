//! What verification sees of each model call.

/// One model call of one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallTrace {
    /// The row.
    pub row: usize,
    /// Number of the call since the row was cleared; the first model call is 1.
    pub call: u64,
    /// Tokens that were fed, one a stream; empty where a voice's recorded vector was fed.
    pub fed: Vec<i32>,
    /// After the output norm.
    pub hidden: Vec<f32>,
    /// Text logits; empty while a prompt is read.
    pub text_logits: Vec<f32>,
    /// The chosen text token; the given one where one is given.
    pub text: u32,
    /// Codes that are given, -1 where the depformer chooses; one a step.
    pub given: Vec<i32>,
    /// What the depformer chose at each step, also where a code is given. Empty while a prompt is read.
    pub chosen: Vec<u32>,
    /// All tokens of the predicted position after the call.
    pub target: Vec<i32>,
    /// All tokens of the frame that became complete.
    pub out: Vec<i32>,
    /// Codes of the caller's frame given before the call, if the order gives them before.
    pub user: Vec<u32>,
}

/// Sees model calls.
pub trait Probe: Send {
    /// A call is over.
    fn call(&mut self, trace: CallTrace);
}
