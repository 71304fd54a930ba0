//! The part of the pickle language that `torch.save` needs for a dictionary of tensors. Nothing is ever called.
//!
//! Lives here: a reader of protocols 2 to 5 that knows a dozen instructions and seven names.
//! Any other name is an error that names it; any other instruction is an error too.

use std::collections::HashMap;
use std::rc::Rc;

use super::BundleError;
use super::bundle::NumberType;
use crate::config::StorageDtype;

/// Longest pickle that is read; a bundle's has about 300 bytes.
const PICKLE_BYTES_MAX: usize = 64 << 10;
/// Deepest nesting of tuples; a tensor's arguments need 2.
const DEPTH_MAX: u8 = 8;

/// A tensor as the pickle describes it; its numbers lie in another entry of the archive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredTensor {
    pub storage: Storage,
    pub offset: usize,
    pub shape: Vec<usize>,
    strides: Vec<usize>,
}

/// A named run of numbers. The place it was saved from is not kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Storage {
    pub kind: NumberType,
    pub key: String,
    pub elements: usize,
}

impl StoredTensor {
    /// How many numbers it has, if they lie row-major without gaps.
    pub(super) fn elements(&self) -> Option<usize> {
        let mut elements = 1_usize;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 && stride != elements {
                return None;
            }
            elements = elements.checked_mul(size)?;
        }
        Some(elements)
    }
}

#[derive(Clone, Debug)]
enum Value {
    None,
    Bool,
    Int(i64),
    Text(Rc<str>),
    Tuple(Rc<[Value]>, u8),
    Dict(Vec<(Rc<str>, Value)>),
    Global(Global),
    Storage(Rc<Storage>),
    Tensor(Rc<StoredTensor>),
    OrderedDict,
    Mark,
    /// A dictionary that was put aside: its content at that time is not its content now.
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Global {
    RebuildTensor,
    OrderedDict,
    StorageOf(NumberType),
}

type Outcome<T> = Result<T, BundleError>;

/// The tensors of the dictionary in `pickle`, by name.
pub(super) fn tensors(pickle: &[u8]) -> Outcome<Vec<(Rc<str>, Rc<StoredTensor>)>> {
    if pickle.len() > PICKLE_BYTES_MAX {
        return Err(wrong("it is too long"));
    }
    let mut machine = Machine {
        code: pickle,
        stack: Vec::new(),
        memo: HashMap::new(),
    };
    let Value::Dict(entries) = machine.run()? else {
        return Err(wrong("it is not a dictionary"));
    };
    let tensor = |(name, value)| match value {
        Value::Tensor(tensor) => Ok((name, tensor)),
        _ => Err(wrong(&format!("{name} is not a tensor"))),
    };
    entries.into_iter().map(tensor).collect()
}

fn wrong(what: &str) -> BundleError {
    BundleError::Pickle { what: what.into() }
}

struct Machine<'a> {
    code: &'a [u8],
    stack: Vec<Value>,
    memo: HashMap<u32, Value>,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Outcome<Value> {
        loop {
            let [op] = self.take_array()?;
            match op {
                b'.' => return self.pop(),
                0x80 => self.protocol()?,
                0x95 => drop(self.take(8)?),
                b'}' => self.stack.push(Value::Dict(Vec::new())),
                b')' => self.stack.push(Value::Tuple(Rc::new([]), 0)),
                b'(' => self.stack.push(Value::Mark),
                b'N' => self.stack.push(Value::None),
                0x88 | 0x89 => self.stack.push(Value::Bool),
                b'K' | b'M' | b'J' | 0x8a => self.int(op)?,
                b'X' | 0x8c => self.text(op)?,
                b'q' | b'r' | 0x94 => self.put_aside(op)?,
                b'h' | b'j' => self.bring_back(op)?,
                b'c' | 0x93 => self.global(op)?,
                b't' => {
                    let items = self.pop_to_mark()?;
                    self.tuple(items)?;
                }
                0x85..=0x87 => {
                    let start = self.stack.len().checked_sub(usize::from(op - 0x84));
                    let items = self
                        .stack
                        .split_off(start.ok_or_else(|| wrong("it ends early"))?);
                    self.tuple(items)?;
                }
                b'Q' => self.persistent_id()?,
                b'R' => self.call()?,
                b's' => {
                    let items = vec![self.pop()?, self.pop()?];
                    self.set_items(items.into_iter().rev().collect())?;
                }
                b'u' => {
                    let items = self.pop_to_mark()?;
                    self.set_items(items)?;
                }
                other => return Err(wrong(&format!("instruction {other:#04x} is not taken"))),
            }
        }
    }

    fn take(&mut self, length: usize) -> Outcome<&'a [u8]> {
        let (head, rest) = self
            .code
            .split_at_checked(length)
            .ok_or_else(|| wrong("it ends early"))?;
        self.code = rest;
        Ok(head)
    }

    fn take_array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let (head, rest) = self
            .code
            .split_first_chunk()
            .ok_or_else(|| wrong("it ends early"))?;
        self.code = rest;
        Ok(*head)
    }

    fn take_line(&mut self) -> Outcome<&'a str> {
        let end = self.code.iter().position(|&byte| byte == b'\n');
        let line = self.take(end.ok_or_else(|| wrong("it ends early"))?)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(|_| wrong("a name is not UTF-8"))
    }

    fn pop(&mut self) -> Outcome<Value> {
        self.stack.pop().ok_or_else(|| wrong("it ends early"))
    }

    fn pop_text(&mut self) -> Outcome<Rc<str>> {
        match self.pop()? {
            Value::Text(text) => Ok(text),
            _ => Err(wrong("a name is not a string")),
        }
    }

    fn pop_to_mark(&mut self) -> Outcome<Vec<Value>> {
        let mark = self
            .stack
            .iter()
            .rposition(|value| matches!(value, Value::Mark));
        let items = self
            .stack
            .split_off(mark.ok_or_else(|| wrong("a mark is missing"))? + 1);
        self.stack.pop();
        Ok(items)
    }

    fn protocol(&mut self) -> Outcome<()> {
        match self.take_array()? {
            [2..=5] => Ok(()),
            [other] => Err(wrong(&format!("protocol {other} is not taken"))),
        }
    }

    fn int(&mut self, op: u8) -> Outcome<()> {
        let value = match op {
            b'K' => i64::from(u8::from_le_bytes(self.take_array()?)),
            b'M' => i64::from(u16::from_le_bytes(self.take_array()?)),
            b'J' => i64::from(i32::from_le_bytes(self.take_array()?)),
            _ => {
                let [length] = self.take_array()?;
                let bytes = self.take(length.into())?;
                let sign = bytes
                    .last()
                    .map_or(0, |&last| if last < 0x80 { 0 } else { 0xff });
                let mut padded = [sign; 8];
                padded
                    .get_mut(..bytes.len())
                    .ok_or_else(|| wrong("a number is too long"))?
                    .copy_from_slice(bytes);
                i64::from_le_bytes(padded)
            }
        };
        self.stack.push(Value::Int(value));
        Ok(())
    }

    fn text(&mut self, op: u8) -> Outcome<()> {
        let length = match op {
            b'X' => u32::from_le_bytes(self.take_array()?) as usize,
            _ => usize::from(u8::from_le_bytes(self.take_array()?)),
        };
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("a string is not UTF-8"))?;
        self.stack.push(Value::Text(text.into()));
        Ok(())
    }

    fn put_aside(&mut self, op: u8) -> Outcome<()> {
        let index = match op {
            b'q' => u32::from(u8::from_le_bytes(self.take_array()?)),
            b'r' => u32::from_le_bytes(self.take_array()?),
            _ => self.memo.len() as u32,
        };
        let value = match self.stack.last() {
            None | Some(Value::Mark) => return Err(wrong("it ends early")),
            Some(Value::Dict(_)) => Value::Shared,
            Some(value) => value.clone(),
        };
        self.memo.insert(index, value);
        Ok(())
    }

    fn bring_back(&mut self, op: u8) -> Outcome<()> {
        let index = match op {
            b'h' => u32::from(u8::from_le_bytes(self.take_array()?)),
            _ => u32::from_le_bytes(self.take_array()?),
        };
        match self.memo.get(&index) {
            None => Err(wrong("it refers to something it has not made")),
            Some(Value::Shared) => Err(wrong("it refers to a dictionary twice")),
            Some(value) => {
                self.stack.push(value.clone());
                Ok(())
            }
        }
    }

    fn global(&mut self, op: u8) -> Outcome<()> {
        let (module, name): (Rc<str>, Rc<str>) = if op == b'c' {
            (self.take_line()?.into(), self.take_line()?.into())
        } else {
            let name = self.pop_text()?;
            (self.pop_text()?, name)
        };
        let float = |dtype| Global::StorageOf(NumberType::Float(dtype));
        let global = match (&*module, &*name) {
            ("torch._utils", "_rebuild_tensor_v2") => Global::RebuildTensor,
            ("collections", "OrderedDict") => Global::OrderedDict,
            ("torch", "BFloat16Storage") => float(StorageDtype::Bf16),
            ("torch", "HalfStorage") => float(StorageDtype::F16),
            ("torch", "FloatStorage") => float(StorageDtype::F32),
            ("torch", "LongStorage") => Global::StorageOf(NumberType::I64),
            ("torch", "IntStorage") => Global::StorageOf(NumberType::I32),
            _ => {
                let name: String = format!("{module}.{name}").chars().take(80).collect();
                return Err(BundleError::Global {
                    name: name.escape_debug().to_string(),
                });
            }
        };
        self.stack.push(Value::Global(global));
        Ok(())
    }

    fn tuple(&mut self, items: Vec<Value>) -> Outcome<()> {
        let depth_of = |value: &Value| match value {
            Value::Tuple(_, depth) => *depth,
            _ => 0,
        };
        let depth = 1 + items.iter().map(depth_of).max().unwrap_or(0);
        if depth > DEPTH_MAX {
            return Err(wrong("it is nested too deeply"));
        }
        // A dictionary inside a tuple would nest without being counted.
        if items
            .iter()
            .any(|item| matches!(item, Value::Dict(_) | Value::Mark))
        {
            return Err(wrong("a tuple holds something else than numbers and names"));
        }
        self.stack.push(Value::Tuple(items.into(), depth));
        Ok(())
    }

    fn persistent_id(&mut self) -> Outcome<()> {
        let Value::Tuple(items, _) = self.pop()? else {
            return Err(wrong("a persistent id is not a tuple"));
        };
        let [
            Value::Text(tag),
            Value::Global(Global::StorageOf(kind)),
            Value::Text(key),
            _,
            Value::Int(elements),
        ] = &*items
        else {
            return Err(wrong("a persistent id is not a storage"));
        };
        if &**tag != "storage" {
            return Err(wrong("a persistent id is not a storage"));
        }
        let elements = size(*elements)?;
        self.stack.push(Value::Storage(Rc::new(Storage {
            kind: *kind,
            key: (**key).into(),
            elements,
        })));
        Ok(())
    }

    /// The two calls `torch.save` writes, neither of which is made.
    fn call(&mut self) -> Outcome<()> {
        let Value::Tuple(arguments, _) = self.pop()? else {
            return Err(wrong("a call has no arguments"));
        };
        let value = match self.pop()? {
            Value::Global(Global::OrderedDict) if arguments.is_empty() => Value::OrderedDict,
            Value::Global(Global::RebuildTensor) => Value::Tensor(Rc::new(tensor(&arguments)?)),
            _ => return Err(wrong("it calls something else than a tensor's maker")),
        };
        self.stack.push(value);
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Value>) -> Outcome<()> {
        let Some(Value::Dict(entries)) = self.stack.last_mut() else {
            return Err(wrong("items are set on something else than a dictionary"));
        };
        let mut items = items.into_iter();
        while let (Some(key), value) = (items.next(), items.next()) {
            match (key, value) {
                (Value::Text(key), Some(value @ Value::Tensor(_))) => entries.push((key, value)),
                _ => return Err(wrong("an entry of the dictionary is not a named tensor")),
            }
        }
        Ok(())
    }
}

fn tensor(arguments: &[Value]) -> Outcome<StoredTensor> {
    let [
        Value::Storage(storage),
        Value::Int(offset),
        Value::Tuple(shape, _),
        Value::Tuple(strides, _),
        Value::Bool,
        Value::OrderedDict | Value::None,
        ..,
    ] = arguments
    else {
        return Err(wrong("a tensor has other arguments than torch.save writes"));
    };
    let sizes = |values: &[Value]| -> Outcome<Vec<usize>> {
        let of = |value: &Value| match value {
            Value::Int(value) => size(*value),
            _ => Err(wrong("a size is not a number")),
        };
        values.iter().map(of).collect()
    };
    let (shape, strides) = (sizes(shape)?, sizes(strides)?);
    if shape.len() != strides.len() {
        return Err(wrong(
            "a tensor has another number of strides than of sizes",
        ));
    }
    Ok(StoredTensor {
        storage: Storage::clone(storage),
        offset: size(*offset)?,
        shape,
        strides,
    })
}

fn size(value: i64) -> Outcome<usize> {
    usize::try_from(value).map_err(|_| wrong("a size is negative"))
}
