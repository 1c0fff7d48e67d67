//! Components made to exhaust whoever reads, validates or compiles them. Each is a few KiB as it lies in a ConfigMap.

use super::pack;

/// Unsigned LEB128, as WebAssembly writes numbers.
fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        bytes.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return bytes;
        }
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(content.len()), content].concat()
}

fn component(sections: &[Vec<u8>]) -> Vec<u8> {
    [b"\0asm\x0d\0\x01\0".to_vec(), sections.concat()].concat()
}

/// A core module with one function type, and functions of these bodies (with their locals).
fn module(bodies: &[Vec<u8>]) -> Vec<u8> {
    let functions = [leb(bodies.len()), vec![0; bodies.len()]].concat();
    let code: Vec<u8> = bodies.iter().flat_map(|body| [leb(body.len()), body.clone()].concat()).collect();
    let code = [leb(bodies.len()), code].concat();
    [b"\0asm\x01\0\0\0".to_vec(), section(1, &[1, 0x60, 0, 0]), section(3, &functions), section(10, &code)].concat()
}

/// The module as the only thing in a component.
fn alone(module: &[u8]) -> Vec<u8> {
    component(&[section(1, module)])
}

/// Component types that lie in each other.
pub(crate) fn nested_types(depth: usize) -> Vec<u8> {
    // A component type of one declaration, which is a type.
    let ty = [[0x41, 1, 1].repeat(depth), vec![0x41, 0]].concat();
    component(&[section(7, &[vec![1], ty].concat())])
}

/// Components that lie in each other.
pub(crate) fn nested_components(depth: usize) -> Vec<u8> {
    (0..depth).fold(component(&[]), |inner, _| component(&[section(4, &inner)]))
}

/// The same component type over and over.
pub(crate) fn many_types(count: usize) -> Vec<u8> {
    component(&[section(7, &[leb(count), [0x41, 0].repeat(count)].concat())])
}

/// Types inside of one type.
pub(crate) fn many_inner_types(count: usize) -> Vec<u8> {
    let declared = [0x01, 0x41, 0].repeat(count);
    component(&[section(7, &[vec![1, 0x41], leb(count), declared].concat())])
}

/// Instances of one empty module.
pub(crate) fn instances(count: usize) -> Vec<u8> {
    let made = [0, 0, 0].repeat(count);
    component(&[section(1, b"\0asm\x01\0\0\0"), section(2, &[leb(count), made].concat())])
}

/// Locals that are set in each of many loops: a value at each of them for the compiler.
pub(crate) fn phis(locals: usize, loops: usize) -> Vec<u8> {
    let mut body = [vec![1], leb(locals), vec![0x7f]].concat();
    for _ in 0..loops {
        body.extend([0x03, 0x40]);
    }
    for local in 0..locals {
        // local.get n, i32.const 1, i32.add, local.set n
        body.extend([vec![0x20], leb(local), vec![0x41, 1, 0x6a, 0x21], leb(local)].concat());
    }
    for _ in 0..loops {
        // i32.const 1, br_if 0, end
        body.extend([0x41, 1, 0x0d, 0, 0x0b]);
    }
    body.push(0x0b);
    alone(&module(&[body]))
}

/// Functions with so many locals each.
pub(crate) fn locals(functions: usize, each: usize) -> Vec<u8> {
    alone(&module(&vec![[vec![1], leb(each), vec![0x7e, 0x0b]].concat(); functions]))
}

/// A function of branch tables.
pub(crate) fn branch_tables(tables: usize, targets: usize) -> Vec<u8> {
    let mut body = vec![0];
    for _ in 0..tables {
        // block, i32.const 0, br_table 0 ..., end
        body.extend([vec![0x02, 0x40, 0x41, 0, 0x0e], leb(targets), vec![0; targets + 1], vec![0x0b]].concat());
    }
    body.push(0x0b);
    alone(&module(&[body]))
}

/// A table with so many elements.
pub(crate) fn elements(count: usize) -> Vec<u8> {
    let table = section(4, &[vec![1, 0x70, 0], leb(count)].concat());
    let segment = section(9, &[vec![1, 0, 0x41, 0, 0x0b], leb(count), vec![0; count]].concat());
    let code = section(10, &[1, 2, 0, 0x0b]);
    let start = [b"\0asm\x01\0\0\0".to_vec(), section(1, &[1, 0x60, 0, 0]), section(3, &[1, 0])].concat();
    alone(&[start, table, segment, code].concat())
}

/// Blocks that lie in each other.
pub(crate) fn nested_blocks(depth: usize) -> Vec<u8> {
    alone(&module(&[[vec![0], [0x02, 0x40].repeat(depth), vec![0x0b; depth + 1]].concat()]))
}

/// Functions that only call.
pub(crate) fn calls(functions: usize, each: usize) -> Vec<u8> {
    alone(&module(&vec![[vec![0], [0x10, 0].repeat(each), vec![0x0b]].concat(); functions]))
}

/// Types of core modules with many imports, which are compared one with each other where they are subtypes.
pub(crate) fn subtyping(types: usize, imports: usize) -> Vec<u8> {
    // A module type: a function type, and imports of it.
    let declared: Vec<u8> = (0..imports)
        .flat_map(|n| {
            let name = format!("{n:04}");
            [vec![0, 1, b'm', 4], name.into_bytes(), vec![0, 0]].concat()
        })
        .collect();
    let ty = [vec![0x50], leb(imports + 1), vec![1, 0x60, 0, 0], declared].concat();
    component(&[section(3, &[leb(types), ty.repeat(types)].concat())])
}

/// Everything, each with a name, as it lies in a ConfigMap.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let zeroes = vec![0; 64 << 20];
    vec![
        ("types nested 2,000 deep", pack(&nested_types(2_000))),
        ("types nested a million deep", pack(&nested_types(1_000_000))),
        ("components nested 200,000 bytes deep", pack(&nested_components(20_000))),
        ("two million types", pack(&many_types(2_000_000))),
        ("a million types inside of one", pack(&many_inner_types(1_000_000))),
        ("a million instances", pack(&instances(1_000_000))),
        ("5,000 locals at 2,000 loops", pack(&phis(5_000, 2_000))),
        ("2,000 locals at 3,900 loops", pack(&phis(2_000, 3_900))),
        ("50,000 locals in each of 1,000 functions", pack(&locals(1_000, 50_000))),
        ("10,000 locals in each of 20,000 functions", pack(&locals(20_000, 10_000))),
        ("branch tables of a million targets", pack(&branch_tables(10, 100_000))),
        ("two million elements", pack(&elements(2_000_000))),
        ("blocks nested a million deep", pack(&nested_blocks(1_000_000))),
        ("20,000 functions of 100 calls", pack(&calls(20_000, 99))),
        ("module types of 4,000 imports", pack(&subtyping(60, 4_000))),
        ("64 MiB of zeroes", pack(&zeroes)),
        ("a zstd frame with a window of 2 GiB", vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8]),
    ]
}
