//! The program: parse, dispatch, exit code. Everything else is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    vivavoce::cli::main()
}
