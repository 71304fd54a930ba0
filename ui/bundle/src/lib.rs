//! Compiles the UI for the browser and writes `ui/dist`.
