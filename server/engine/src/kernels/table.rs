//! Embedding tables.

/// An embedding table `[rows, dim]`, f32 or bf16.
pub struct Table {
    dim: usize,
    rows: usize,
    storage: Storage,
}

enum Storage {
    F32(Vec<f32>),
    Bf16(Vec<u16>),
}

impl Table {
    /// A table of 32-bit floats, row-major `[rows, dim]`.
    ///
    /// # Panics
    /// When `data` has not `rows * dim` elements.
    pub fn from_f32(rows: usize, dim: usize, data: &[f32]) -> Table {
        assert_eq!(data.len(), rows * dim, "a table needs rows * dim elements");
        Table {
            dim,
            rows,
            storage: Storage::F32(data.to_vec()),
        }
    }

    /// A table of bf16 bit patterns, row-major `[rows, dim]`.
    ///
    /// # Panics
    /// When `bits` has not `rows * dim` elements.
    pub fn from_bf16_bits(rows: usize, dim: usize, bits: &[u16]) -> Table {
        assert_eq!(bits.len(), rows * dim, "a table needs rows * dim elements");
        Table {
            dim,
            rows,
            storage: Storage::Bf16(bits.to_vec()),
        }
    }

    /// Number of entries.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of an entry.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Bytes of memory the entries take.
    pub fn bytes(&self) -> usize {
        match &self.storage {
            Storage::F32(data) => data.len() * 4,
            Storage::Bf16(bits) => bits.len() * 2,
        }
    }

    /// Adds entry `id` to `y`.
    ///
    /// # Panics
    /// When there is no such entry or `y` has not `dim` elements.
    pub fn add_row(&self, id: usize, y: &mut [f32]) {
        assert_eq!(y.len(), self.dim);
        let range = id * self.dim..(id + 1) * self.dim;
        match &self.storage {
            Storage::F32(data) => y.iter_mut().zip(&data[range]).for_each(|(y, v)| *y += v),
            Storage::Bf16(bits) => y
                .iter_mut()
                .zip(&bits[range])
                .for_each(|(y, b)| *y += f32::from_bits(u32::from(*b) << 16)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_added_the_same_from_both_storages() {
        let values = [1.0f32, -2.5, 0.125, 3.0, 4.0, -8.0];
        let bits: Vec<u16> = values.iter().map(|v| (v.to_bits() >> 16) as u16).collect();
        for table in [
            Table::from_f32(2, 3, &values),
            Table::from_bf16_bits(2, 3, &bits),
        ] {
            let mut y = [10.0; 3];
            table.add_row(1, &mut y);
            assert_eq!(y, [13.0, 14.0, 2.0]);
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn an_entry_past_the_end_is_refused() {
        Table::from_f32(2, 3, &[0.0; 6]).add_row(2, &mut [0.0; 3]);
    }
}
