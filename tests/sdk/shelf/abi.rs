// gannet/abi.h in Rust, by hand: the structs that an optimizer needs. layout.py checks every size and offset against the header.
#![allow(non_camel_case_types, dead_code)]
use std::os::raw::{c_char, c_void};

pub const GANNET_MAGIC: u64 = 0x314e4c50544e4e47;
pub const GANNET_OK: i32 = 0;
pub const GANNET_INVALID_ARGUMENT: i32 = 1;
pub const GANNET_UNSUPPORTED: i32 = 2;
pub const GANNET_KIND_OPTIMIZER: u32 = 2;
pub const GANNET_TIER_STABLE: u32 = 1;
pub const GANNET_DTYPE_NONE: u32 = 0;
pub const GANNET_FLOAT32: u32 = 1;
pub const GANNET_FLOAT64: u32 = 2;
pub const GANNET_SUM: u32 = 1;
pub const GANNET_SUM_OF_GROUP: u32 = 2;
pub const GANNET_STATE_PER_ELEMENT: u32 = 1;
pub const GANNET_STATE_SCALAR: u32 = 3;
pub const GANNET_OPTIMIZER_ELEMENTWISE: u64 = 1;
pub const GANNET_PARAM_FLOAT: u32 = 3;
pub const GANNET_PARAM_HAS_MIN: u32 = 1 << 2;
pub const GANNET_PARAM_HAS_MAX: u32 = 1 << 3;
pub const GANNET_PARAM_MAX_EXCLUSIVE: u32 = 1 << 5;
pub const GANNET_PARAM_DYNAMIC: u32 = 1 << 6;
pub const GANNET_ROLE_LEARNING_RATE: u32 = 1;
pub const GANNET_ROLE_MOMENTUM: u32 = 4;
pub const GANNET_INTERFACE_VERSIONS: u32 = 2 | 3 << 8 | 2 << 16;

/// Pointers to constants that live as long as the process may be shared by threads.
#[repr(transparent)]
pub struct Shared<T>(pub T);
unsafe impl<T> Sync for Shared<T> {}

#[repr(C)]
pub struct gannet_error {
    pub struct_size: u32,
    pub reserved: u32,
    pub capacity: u64,
    pub message: *mut c_char,
}

#[repr(C)]
pub struct gannet_param_spec {
    pub struct_size: u32,
    pub r#type: u32,
    pub flags: u32,
    pub length: u32,
    pub name: *const c_char,
    pub doc: *const c_char,
    pub default_json: *const c_char,
    pub choices: *const c_char,
    pub min: f64,
    pub max: f64,
    pub roles: *const u32,
}

#[repr(C)]
pub struct gannet_param_value {
    pub struct_size: u32,
    pub r#type: u32,
    pub is_set: u32,
    pub is_given: u32,
    pub name: *const c_char,
    pub integer: i64,
    pub number: f64,
    pub string: *const c_char,
    pub list: *const f64,
    pub list_count: u64,
    pub integers: *const i64,
    pub strings: *const *const c_char,
}

#[repr(C)]
pub struct gannet_params {
    pub struct_size: u32,
    pub reserved: u32,
    pub values: *const gannet_param_value,
    pub count: u64,
    pub stride: u64,
}

pub type gannet_loop_body = unsafe extern "C" fn(*mut c_void, u64, u64) -> i32;

#[repr(C)]
pub struct gannet_host {
    pub struct_size: u32,
    pub abi_major: u16,
    pub abi_minor: u16,
    pub context: *mut c_void,
    pub log: unsafe extern "C" fn(*mut c_void, i32, *const c_char),
    pub parallel_for: unsafe extern "C" fn(*mut c_void, u64, u64, u64, gannet_loop_body, *mut c_void) -> i32,
    pub thread_count: unsafe extern "C" fn(*mut c_void) -> u32,
    pub allocate: unsafe extern "C" fn(*mut c_void, u64, u64) -> *mut c_void,
    pub deallocate: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub rank: unsafe extern "C" fn(*mut c_void, u32) -> u32,
    pub world_size: unsafe extern "C" fn(*mut c_void, u32) -> u32,
    pub collective: unsafe extern "C" fn(*mut c_void, *const c_void, *mut gannet_error) -> i32,
}

#[repr(C)]
pub struct gannet_state_spec {
    pub struct_size: u32,
    pub dtype: u32,
    pub extent: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub initial_value: f64,
    pub block: u64,
}

#[repr(C)]
pub struct gannet_sum_spec {
    pub struct_size: u32,
    pub scope: u32,
    pub reduce_op: u32,
    pub round: u32,
}

#[repr(C)]
pub struct gannet_tensor {
    pub struct_size: u32,
    pub dimensions: u32,
    pub index: u64,
    pub id: u64,
    pub name: *const c_char,
    pub numel: u64,
    pub shape: *const i64,
    pub columns: u64,
    pub matrix_rows: u64,
    pub first_row: u64,
    pub first_column: u64,
}

#[repr(C)]
pub struct gannet_optimizer_context {
    pub struct_size: u32,
    pub group: u32,
    pub group_count: u32,
    pub rank: u32,
    pub world_size: u32,
    pub device: u32,
    pub tensors: *const gannet_tensor,
    pub tensor_count: u64,
    pub tensor_stride: u64,
}

#[repr(C)]
pub struct gannet_optimizer_description {
    pub struct_size: u32,
    pub reserved: u32,
    pub capabilities: u64,
    pub states: *const gannet_state_spec,
    pub state_count: u64,
    pub state_stride: u64,
    pub sums: *const gannet_sum_spec,
    pub sum_count: u64,
    pub sum_stride: u64,
    pub range_alignment: u64,
}

#[repr(C)]
pub struct gannet_step_args {
    pub struct_size: u32,
    pub group: u32,
    pub step: u64,
    pub grad_scale: f64,
    pub hyper: *const f64,
    pub hyper_count: u64,
    pub tensors: *const gannet_tensor,
    pub tensor_count: u64,
    pub tensor_stride: u64,
    pub states: *const *mut c_void,
    pub state_count: u64,
    pub sums: *const f64,
    pub sum_count: u64,
    pub stream: *mut c_void,
    pub lines: *const *const f64,
}

#[repr(C)]
pub struct gannet_segment {
    pub struct_size: u32,
    pub dimensions: u32,
    pub tensor_index: u64,
    pub tensor_id: u64,
    pub offset: u64,
    pub numel: u64,
    pub tensor_offset: u64,
    pub tensor_numel: u64,
    pub shape: *const i64,
    pub name: *const c_char,
    pub columns: u64,
    pub matrix_rows: u64,
    pub first_row: u64,
    pub first_column: u64,
}

#[repr(C)]
pub struct gannet_update_args {
    pub struct_size: u32,
    pub param_dtype: u32,
    pub grad_dtype: u32,
    pub out_dtype: u32,
    pub numel: u64,
    pub param: *mut c_void,
    pub grad: *const c_void,
    pub out: *mut c_void,
    pub states: *const *mut c_void,
    pub state_count: u64,
    pub grad_scale: f64,
    pub step: u64,
    pub hyper: *const f64,
    pub hyper_count: u64,
    pub segments: *const gannet_segment,
    pub segment_count: u64,
    pub segment_stride: u64,
    pub stream: *mut c_void,
    pub sums: *const f64,
    pub sum_count: u64,
    pub group: u32,
    pub device: u32,
    pub lines: *const *mut f64,
}

#[repr(C)]
pub struct gannet_optimizer_api {
    pub struct_size: u32,
    pub reserved: u32,
    pub create: unsafe extern "C" fn(*const gannet_host, *const gannet_params, *mut *mut c_void, *mut gannet_error) -> i32,
    pub destroy: unsafe extern "C" fn(*mut c_void),
    pub describe: unsafe extern "C" fn(
        *mut c_void,
        *const gannet_optimizer_context,
        *mut gannet_optimizer_description,
        *mut gannet_error,
    ) -> i32,
    pub supports: unsafe extern "C" fn(*mut c_void, u32, u32, u32, *mut gannet_error) -> i32,
    pub update: unsafe extern "C" fn(*mut c_void, *const gannet_update_args, *mut gannet_error) -> i32,
    pub sums: Option<unsafe extern "C" fn(*mut c_void, *const gannet_update_args, u32, *mut f64, *mut gannet_error) -> i32>,
    pub begin_step: Option<unsafe extern "C" fn(*mut c_void, *const gannet_step_args, *mut gannet_error) -> i32>,
    pub end_step: Option<unsafe extern "C" fn(*mut c_void, *const gannet_step_args, *mut gannet_error) -> i32>,
    pub evaluate: Option<unsafe extern "C" fn(*mut c_void, *const gannet_update_args, *mut gannet_error) -> i32>,
    pub reduces_gradients: Option<unsafe extern "C" fn(*mut c_void, u64, *mut u32, *mut gannet_error) -> i32>,
}

#[repr(C)]
pub struct gannet_descriptor {
    pub struct_size: u32,
    pub abi_major: u16,
    pub abi_minor: u16,
    pub magic: u64,
    pub kind: u32,
    pub tier: u32,
    pub name: *const c_char,
    pub device: *const c_char,
    pub version: *const c_char,
    pub fingerprint: *const c_char,
    pub doc: *const c_char,
    pub params: *const gannet_param_spec,
    pub param_count: u64,
    pub param_stride: u64,
    pub api: *const c_void,
    pub flags: u32,
    pub reserved: u32,
    pub extensions: *const c_void,
}

#[repr(C)]
pub struct gannet_note_text {
    pub offset: u32,
    pub bytes: u32,
}

#[repr(C)]
pub struct gannet_note {
    pub struct_size: u32,
    pub abi_major: u16,
    pub abi_minor: u16,
    pub magic: u64,
    pub tier: u32,
    pub interface_versions: u32,
    pub required_features: u64,
    pub fingerprint: gannet_note_text,
    pub vendor: gannet_note_text,
    pub provides: gannet_note_text,
}
