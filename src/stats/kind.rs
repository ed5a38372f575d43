//! The kinds of device memory that a program can obtain without the pool's doing. They count against the cap all the
//! same, and the report tells them apart, because the remedy for each is another.

/// How memory outside the pool was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExternalKind {
    /// `cuMemAllocManaged`.
    Managed,
    /// Stream-ordered: `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`.
    Async,
    /// Physical memory for virtual address ranges: `cuMemCreate`.
    Vmm,
    /// Rows with padding: `cuMemAllocPitch`.
    Pitched,
    /// `cuArrayCreate`, `cuArray3DCreate`.
    Array,
    /// `cuMipmappedArrayCreate`.
    Mipmap,
    /// Memory nodes of graphs.
    Graph,
    /// Anything else, for example a plain allocation that was forwarded.
    Other,
}

impl ExternalKind {
    /// Every kind, in the order of the report.
    pub const ALL: [Self; 8] = [
        Self::Managed,
        Self::Async,
        Self::Vmm,
        Self::Pitched,
        Self::Array,
        Self::Mipmap,
        Self::Graph,
        Self::Other,
    ];

    /// The word used in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Async => "async",
            Self::Vmm => "vmm",
            Self::Pitched => "pitched",
            Self::Array => "array",
            Self::Mipmap => "mipmap",
            Self::Graph => "graph",
            Self::Other => "other",
        }
    }

    /// Position in [`Self::ALL`], for tables with one entry a kind.
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_position_in_the_list_of_all() {
        for (position, kind) in ExternalKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), position, "{}", kind.as_str());
        }
    }
}
