//! Structural bounds, looked at before anything is validated: what exceeds them is refused by number and not by how long it takes.
//!
//! Each is several times what the policies measured have (`docs/isolation.md`), and far below what makes validation or compilation expensive. What gets
//! past them nevertheless meets the limits of the process.

use pacer_policy::{FUNCTIONS, LoadError, Refusal};
use wasmparser::{
    BinaryReaderError, BlockType, ComponentType, ComponentTypeDeclaration, CompositeInnerType, CoreType, ElementItems,
    FunctionBody, InstanceTypeDeclaration, ModuleTypeDeclaration, Operator, Parser, Payload,
};

/// Sections over all modules and components.
const SECTIONS: u64 = 10_000;
/// Modules and components that lie in each other.
const NESTING: u64 = 16;
/// Core types and component types, those inside of others included.
const TYPES: u64 = 20_000;
/// Component types that lie in each other.
const TYPE_NESTING: u64 = 32;
/// Parameters and results of one function type.
const PARAMETERS: u64 = 256;
/// Instances, of modules and of components.
const INSTANCES: u64 = 1_000;
/// Imports, exports, aliases and functions of the canonical ABI.
const NAMES: u64 = 50_000;
/// Elements of tables.
const ELEMENTS: u64 = 100_000;
/// Globals, memories, tables, data segments and tags.
const DEFINITIONS: u64 = 50_000;
/// Locals of one function.
const LOCALS: u64 = 10_000;
/// Targets of all branch tables of one function.
const TARGETS: u64 = 50_000;
/// Values that a compiler may have to keep apart in one function: its locals at each of its blocks.
const VALUES: u64 = 8_000_000;
/// The same over all functions.
const ALL_VALUES: u64 = 64_000_000;

/// Refuses what has more of something than it may.
///
/// # Errors
///
/// [`Refusal::TooLarge`] with the number, [`Refusal::Invalid`] for what can't be read.
pub(crate) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    let mut counted = Counted::default();
    for payload in Parser::new(0).parse_all(bytes) {
        counted.payload(payload.map_err(unreadable)?)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn unreadable(error: BinaryReaderError) -> LoadError {
    LoadError::new(Refusal::Invalid, format!("it is not valid WebAssembly for this host, or is truncated: {error}"))
}

fn within(what: &str, count: u64, most: u64) -> Result<(), LoadError> {
    if count > most {
        return Err(LoadError::new(Refusal::TooLarge, format!("it has {count} {what} and may have {most}")));
    }
    Ok(())
}

#[derive(Default)]
struct Counted {
    sections: u64,
    depth: u64,
    types: u64,
    instances: u64,
    names: u64,
    elements: u64,
    definitions: u64,
    functions: u64,
    values: u64,
}

impl Counted {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), LoadError> {
        self.sections += 1;
        within("sections", self.sections, SECTIONS.saturating_add(self.functions))?;
        match payload {
            Payload::Version { .. } => {
                self.depth += 1;
                within("modules or components inside of each other", self.depth, NESTING)
            }
            Payload::End(_) => {
                self.depth = self.depth.saturating_sub(1);
                Ok(())
            }
            Payload::TypeSection(types) => {
                self.add_types(types.count())?;
                for group in types {
                    for ty in group.map_err(unreadable)?.into_types() {
                        if let CompositeInnerType::Func(ty) = &ty.composite_type.inner {
                            let both = ty.params().len().saturating_add(ty.results().len()) as u64;
                            within("parameters and results of one function", both, PARAMETERS)?;
                        }
                    }
                }
                Ok(())
            }
            Payload::CoreTypeSection(types) => {
                self.add_types(types.count())?;
                types.into_iter().try_for_each(|ty| self.core_type(&ty.map_err(unreadable)?, 1))
            }
            Payload::ComponentTypeSection(types) => {
                self.add_types(types.count())?;
                types.into_iter().try_for_each(|ty| self.component_type(&ty.map_err(unreadable)?, 1))
            }
            Payload::InstanceSection(section) => self.add_instances(section.count()),
            Payload::ComponentInstanceSection(section) => self.add_instances(section.count()),
            Payload::ImportSection(section) => self.add_names(section.count()),
            Payload::ExportSection(section) => self.add_names(section.count()),
            Payload::ComponentImportSection(section) => self.add_names(section.count()),
            Payload::ComponentExportSection(section) => self.add_names(section.count()),
            Payload::ComponentAliasSection(section) => self.add_names(section.count()),
            Payload::ComponentCanonicalSection(section) => self.add_names(section.count()),
            Payload::GlobalSection(section) => self.add_definitions(section.count()),
            Payload::MemorySection(section) => self.add_definitions(section.count()),
            Payload::TableSection(section) => self.add_definitions(section.count()),
            Payload::DataSection(section) => self.add_definitions(section.count()),
            Payload::ElementSection(section) => {
                for element in section {
                    self.elements += match element.map_err(unreadable)?.items {
                        ElementItems::Functions(items) => u64::from(items.count()),
                        ElementItems::Expressions(_, items) => u64::from(items.count()),
                    };
                    within("elements of tables", self.elements, ELEMENTS)?;
                }
                Ok(())
            }
            Payload::FunctionSection(section) => {
                self.functions += u64::from(section.count());
                within("functions", self.functions, u64::from(FUNCTIONS))
            }
            Payload::CodeSectionEntry(body) => self.body(&body),
            _ => Ok(()),
        }
    }

    fn add_types(&mut self, count: u32) -> Result<(), LoadError> {
        self.types += u64::from(count);
        within("types", self.types, TYPES)
    }

    fn add_instances(&mut self, count: u32) -> Result<(), LoadError> {
        self.instances += u64::from(count);
        within("instances", self.instances, INSTANCES)
    }

    fn add_names(&mut self, count: u32) -> Result<(), LoadError> {
        self.names += u64::from(count);
        within("imports, exports, aliases and canonical functions", self.names, NAMES)
    }

    fn add_definitions(&mut self, count: u32) -> Result<(), LoadError> {
        self.definitions += u64::from(count);
        within("globals, memories, tables and data segments", self.definitions, DEFINITIONS)
    }

    fn deeper(&mut self, declared: usize, depth: u64) -> Result<(), LoadError> {
        within("types inside of each other", depth, TYPE_NESTING)?;
        self.types += declared as u64;
        within("types", self.types, TYPES)
    }

    fn component_type(&mut self, ty: &ComponentType<'_>, depth: u64) -> Result<(), LoadError> {
        match ty {
            ComponentType::Component(declarations) => {
                self.deeper(declarations.len(), depth)?;
                declarations.iter().try_for_each(|declared| match declared {
                    ComponentTypeDeclaration::CoreType(ty) => self.core_type(ty, depth + 1),
                    ComponentTypeDeclaration::Type(ty) => self.component_type(ty, depth + 1),
                    _ => Ok(()),
                })
            }
            ComponentType::Instance(declarations) => {
                self.deeper(declarations.len(), depth)?;
                declarations.iter().try_for_each(|declared| match declared {
                    InstanceTypeDeclaration::CoreType(ty) => self.core_type(ty, depth + 1),
                    InstanceTypeDeclaration::Type(ty) => self.component_type(ty, depth + 1),
                    _ => Ok(()),
                })
            }
            _ => Ok(()),
        }
    }

    fn core_type(&mut self, ty: &CoreType<'_>, depth: u64) -> Result<(), LoadError> {
        let CoreType::Module(declarations) = ty else { return Ok(()) };
        let types = declarations.iter().filter(|declared| matches!(declared, ModuleTypeDeclaration::Type(_)));
        self.deeper(types.count().max(declarations.len() / 8), depth)
    }

    fn body(&mut self, body: &FunctionBody<'_>) -> Result<(), LoadError> {
        let mut locals = 0_u64;
        for group in body.get_locals_reader().map_err(unreadable)? {
            locals = locals.saturating_add(u64::from(group.map_err(unreadable)?.0));
            within("locals in one function", locals, LOCALS)?;
        }
        let (mut blocks, mut targets) = (1_u64, 0_u64);
        for operator in body.get_operators_reader().map_err(unreadable)? {
            match operator.map_err(unreadable)? {
                Operator::Block { blockty } | Operator::Loop { blockty } | Operator::If { blockty } => {
                    // A block with a type of its own may bring as many values as a type may have.
                    blocks += if matches!(blockty, BlockType::FuncType(_)) { 4 } else { 1 };
                }
                Operator::Else | Operator::BrIf { .. } => blocks += 1,
                Operator::BrTable { targets: table } => {
                    targets = targets.saturating_add(u64::from(table.len()));
                    within("branch targets in one function", targets, TARGETS)?;
                }
                _ => {}
            }
        }
        let values = locals.saturating_add(16).saturating_mul(blocks);
        within("values at blocks of one function", values, VALUES)?;
        self.values = self.values.saturating_add(values);
        within("values at blocks of all functions", self.values, ALL_VALUES)
    }
}
