//! What a pointer points to.

use super::{give, want};
use crate::codes::{INVALID_VALUE, R};
use crate::memory::Kind;
use crate::world::World;
use std::ffi::c_void;

/// An attribute's value, in the width that the program's variable has.
enum Value {
    Bool(bool),
    Int(i32),
    Wide(u64),
}

impl Value {
    fn write(&self, out: *mut c_void) {
        match self {
            Value::Bool(v) => give(out.cast::<u8>(), u8::from(*v)),
            Value::Int(v) => give(out.cast::<i32>(), *v),
            Value::Wide(v) => give(out.cast::<u64>(), *v),
        }
    }
}

/// `None` for a number that is not an attribute; an error for a pointer that the driver does not know.
fn attribute(w: &World, number: i32, pointer: u64) -> Option<R<Value>> {
    if !(1..=20).contains(&number) {
        return None;
    }
    let (base, size, device, ctx, id, kind, sync) = if let Some((base, a)) = w.find(pointer) {
        (base, a.size, a.device, a.ctx, a.id, Some(a.kind), a.sync_memops)
    } else if let Some((base, m)) = w.mapping(pointer) {
        let device = w.handles.get(&m.handle).map_or(0, |h| h.device.max(0));
        (base, m.size, device, 0, m.handle, None, false)
    } else {
        return Some(Err(INVALID_VALUE));
    };
    let host = matches!(kind, Some(Kind::Host | Kind::Registered));
    let shared = host || kind == Some(Kind::Managed);
    Some(Ok(match number {
        1 => Value::Wide(ctx),
        2 => Value::Int(if host { 1 } else { 2 }),
        3 => Value::Wide(pointer),
        4 if shared => Value::Wide(pointer),
        6 => Value::Bool(sync),
        7 => Value::Wide(id),
        8 => Value::Bool(kind == Some(Kind::Managed)),
        9 => Value::Int(device.max(0)),
        10 => Value::Bool(kind == Some(Kind::Plain)),
        11 => Value::Wide(base),
        12 => Value::Wide(size),
        13 => Value::Bool(true),
        14 => Value::Int(i32::from(kind.is_none())),
        17 => Value::Wide(if let Some(Kind::Pool(p)) = kind { p } else { 0 }),
        _ => return Some(Err(INVALID_VALUE)),
    }))
}

driver! {
    /// One attribute of a pointer.
    Init fn cuPointerGetAttribute: (value: *mut c_void, number: i32, pointer: u64) |w| {
        want(value)?;
        attribute(w, number, pointer).ok_or(INVALID_VALUE)??.write(value);
        Ok(())
    }

    /// Several attributes; those that a pointer does not have come out as 0, but for the device (-2), the address on the
    /// host (the pointer itself) and the range (not written). As driver 580 does.
    Init fn cuPointerGetAttributes: (count: u32, numbers: *const i32, values: *const *mut c_void, pointer: u64) |w| {
        want(numbers)?;
        want(values)?;
        for i in 0..count as usize {
            // SAFETY: the caller passes `count` numbers and as many places for values.
            let (number, out) = unsafe { (*numbers.add(i), *values.add(i)) };
            match attribute(w, number, pointer).ok_or(INVALID_VALUE)? {
                Ok(v) => v.write(out),
                Err(_) => match number {
                    6 | 8 | 10 | 13 => Value::Bool(false).write(out),
                    4 => Value::Wide(pointer).write(out),
                    9 => Value::Int(-2).write(out),
                    11 | 12 => {}
                    2 | 14 | 15 => Value::Int(0).write(out),
                    _ => Value::Wide(0).write(out),
                },
            }
        }
        Ok(())
    }

    /// Sets an attribute; only the one that makes copies synchronous can be set.
    Init fn cuPointerSetAttribute: (value: *const c_void, number: i32, pointer: u64) |w| {
        want(value)?;
        let base = w.find(pointer).map(|(b, _)| b).ok_or(INVALID_VALUE)?;
        if number != 6 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller passes an unsigned int.
        let on = unsafe { *value.cast::<u32>() } != 0;
        w.allocs.get_mut(&base).ok_or(INVALID_VALUE)?.sync_memops = on;
        Ok(())
    }
}
