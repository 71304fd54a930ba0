//! The files a browser gets: named by their content, so that they may be cached for ever, and compressed beforehand.
//!
//! `index.html` alone keeps its name. In it, `{{NAME}}` stands for the address of a file by its plain name, and `{{root}}`
//! for the way from the page's address to the UI's root, which the server puts in for each request.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Most bytes of all files together as a browser that takes brotli downloads them.
const DOWNLOAD_BYTES_MAX: usize = 600_000;
/// Starts the module. The page cannot do it by itself: scripts inside a page are forbidden to it.
const START: &str = "import init from './{{ui.js}}';\ninit({ module_or_path: new URL('./{{ui_bg.wasm}}', import.meta.url) });\n";

/// Writes `ui/dist` anew from what bindgen made in `made`, the style sheet and the worklets.
pub fn write(ui: &Path, made: &Path) -> anyhow::Result<()> {
    let dist = ui.join("dist");
    let fresh = ui.join("dist.new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    let mut out = Out {
        folder: &fresh,
        names: BTreeMap::new(),
        bytes: 0,
    };
    fs::create_dir_all(fresh.join("assets"))?;
    out.asset("ui.js", read(&made.join("ui.js"))?)?;
    out.asset("ui_bg.wasm", read(&made.join("ui_bg.wasm"))?)?;
    let start = out.filled(START, "")?;
    out.asset("start.js", start.into_bytes())?;
    out.asset("style.css", read(&ui.join("style.css"))?)?;
    for folder in ["worklets", "images"] {
        let Ok(entries) = fs::read_dir(ui.join(folder)) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            out.asset(&name, read(&entry.path())?)?;
        }
    }
    let page = fs::read_to_string(ui.join("index.html")).context("ui/index.html")?;
    let page = out.filled(&page, "{{root}}assets/")?;
    fs::write(fresh.join("index.html"), page)?;
    if out.bytes > DOWNLOAD_BYTES_MAX {
        bail!(
            "the UI takes {} bytes to download, the limit is {DOWNLOAD_BYTES_MAX}",
            out.bytes
        );
    }
    if dist.exists() {
        fs::remove_dir_all(&dist)?;
    }
    fs::rename(&fresh, &dist)?;
    eprintln!("ui/dist is made: {} kB to download", out.bytes / 1_000);
    Ok(())
}

struct Out<'a> {
    folder: &'a Path,
    /// Plain name to name with content.
    names: BTreeMap<String, String>,
    bytes: usize,
}

impl Out<'_> {
    /// Writes one file under a name that changes with its content, and its compressed forms beside it.
    fn asset(&mut self, name: &str, content: Vec<u8>) -> anyhow::Result<()> {
        let digest = Sha256::digest(&content);
        let mark: String = digest[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (stem, ending) = name.rsplit_once('.').context("a file without an ending")?;
        let marked = format!("{stem}-{mark}.{ending}");
        let path = self.folder.join("assets").join(&marked);
        let brotli = brotli_of(&content)?;
        self.bytes += brotli.len();
        fs::write(path.with_extension(format!("{ending}.br")), brotli)?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&content)?;
        fs::write(path.with_extension(format!("{ending}.gz")), gzip.finish()?)?;
        fs::write(path, content)?;
        self.names.insert(name.to_owned(), marked);
        Ok(())
    }

    /// `text` with the addresses of files put in.
    fn filled(&self, text: &str, before: &str) -> anyhow::Result<String> {
        let mut text = text.to_owned();
        for (name, marked) in &self.names {
            text = text.replace(&format!("{{{{{name}}}}}"), &format!("{before}{marked}"));
        }
        let left = text.replace("{{root}}", "");
        match left.find("{{") {
            Some(at) => bail!(
                "there is no file for {}",
                left[at..].chars().take(40).collect::<String>()
            ),
            None => Ok(text),
        }
    }
}

fn brotli_of(content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut packed = Vec::new();
    let params = brotli::enc::BrotliEncoderParams {
        quality: 11,
        ..Default::default()
    };
    brotli::BrotliCompress(&mut &content[..], &mut packed, &params)?;
    Ok(packed)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}
