// The shelf's rule in Rust, against abi.rs alone; steady.cpp says what it computes. A panic would cross the contract: the plugin
// is compiled with panic=abort, and no call panics.
mod abi;
use abi::*;
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::ptr::{copy_nonoverlapping, null};

struct Steady {
    host: *const gannet_host,
    limit: f64,
    decay: f64,
}

macro_rules! text {
    ($literal:expr) => {
        concat!($literal, "\0").as_ptr() as *const c_char
    };
}

unsafe fn fail(error: *mut gannet_error, status: i32, sentence: &str) -> i32 {
    if !error.is_null() && !(*error).message.is_null() && (*error).capacity > 0 {
        let length = sentence.len().min((*error).capacity as usize - 1);
        copy_nonoverlapping(sentence.as_ptr() as *const c_char, (*error).message, length);
        *(*error).message.add(length) = 0;
    }
    status
}

unsafe fn element<T>(first: *const T, stride: u64, i: u64) -> *const T {
    (first as *const u8).add((i * stride) as usize) as *const T
}

// ---- What the config may say ---------------------------------------------------------------------------------------------

static RATE_ROLE: [u32; 1] = [GANNET_ROLE_LEARNING_RATE];
static MOMENTUM_ROLE: [u32; 1] = [GANNET_ROLE_MOMENTUM];
const BELOW: u32 = GANNET_PARAM_HAS_MIN | GANNET_PARAM_HAS_MAX | GANNET_PARAM_MAX_EXCLUSIVE;

macro_rules! spec {
    ($flags:expr, $name:expr, $default:expr, $min:expr, $max:expr, $roles:expr, $doc:expr) => {
        gannet_param_spec {
            struct_size: size_of::<gannet_param_spec>() as u32,
            r#type: GANNET_PARAM_FLOAT,
            flags: $flags,
            length: 0,
            name: text!($name),
            doc: text!($doc),
            default_json: text!($default),
            choices: null(),
            min: $min,
            max: $max,
            roles: $roles,
        }
    };
}

static SPECS: Shared<[gannet_param_spec; 4]> = Shared([
    spec!(GANNET_PARAM_DYNAMIC | GANNET_PARAM_HAS_MIN, "lr", "1e-2", 0.0, 0.0, &RATE_ROLE as *const u32, "learning rate"),
    spec!(GANNET_PARAM_DYNAMIC | BELOW, "momentum", "0.9", 0.0, 1.0, &MOMENTUM_ROLE as *const u32, "share of the last direction"),
    spec!(GANNET_PARAM_HAS_MIN, "limit", "2", 1.0, 0.0, null(), "largest norm of the gradient, as a multiple of its running mean"),
    spec!(BELOW, "decay", "0.75", 0.0, 1.0, null(), "share of the last mean in the running mean"),
]);

// ---- An object -----------------------------------------------------------------------------------------------------------

unsafe extern "C" fn create(
    host: *const gannet_host,
    params: *const gannet_params,
    result: *mut *mut c_void,
    error: *mut gannet_error,
) -> i32 {
    let number = |i| (*element((*params).values, (*params).stride, i)).number;
    let (limit, decay) = (number(2), number(3));
    if limit == 1.0 && decay == 0.0 {
        return fail(
            error,
            GANNET_INVALID_ARGUMENT,
            "with 'limit' 1 and 'decay' 0 no gradient could ever grow: give 'decay' a number above 0, or 'limit' one above 1",
        );
    }
    *result = Box::into_raw(Box::new(Steady { host, limit, decay })) as *mut c_void;
    GANNET_OK
}

unsafe extern "C" fn destroy(this: *mut c_void) {
    drop(Box::from_raw(this as *mut Steady));
}

static STATES: Shared<[gannet_state_spec; 2]> = Shared([
    gannet_state_spec {
        struct_size: size_of::<gannet_state_spec>() as u32,
        dtype: GANNET_FLOAT32,
        extent: GANNET_STATE_PER_ELEMENT,
        flags: 0,
        name: text!("momentum_buffer"),
        initial_value: 0.0,
        block: 0,
    },
    gannet_state_spec {
        struct_size: size_of::<gannet_state_spec>() as u32,
        dtype: GANNET_FLOAT64,
        extent: GANNET_STATE_SCALAR,
        flags: 0,
        name: text!("mean_norm"),
        initial_value: 0.0,
        block: 0,
    },
]);
static WANTED: [gannet_sum_spec; 1] = [gannet_sum_spec {
    struct_size: size_of::<gannet_sum_spec>() as u32,
    scope: GANNET_SUM_OF_GROUP,
    reduce_op: GANNET_SUM,
    round: 0,
}];

unsafe extern "C" fn describe(
    _this: *mut c_void,
    _context: *const gannet_optimizer_context,
    description: *mut gannet_optimizer_description,
    _error: *mut gannet_error,
) -> i32 {
    let description = &mut *description;
    description.capabilities = GANNET_OPTIMIZER_ELEMENTWISE;
    description.states = STATES.0.as_ptr();
    description.state_count = 2;
    description.state_stride = size_of::<gannet_state_spec>() as u64;
    description.sums = WANTED.as_ptr();
    description.sum_count = 1;
    description.sum_stride = size_of::<gannet_sum_spec>() as u64;
    GANNET_OK
}

unsafe extern "C" fn supports(_this: *mut c_void, param: u32, grad: u32, out: u32, error: *mut gannet_error) -> i32 {
    if param == GANNET_FLOAT32 && grad == GANNET_FLOAT32 && out == GANNET_DTYPE_NONE {
        return GANNET_OK;
    }
    fail(error, GANNET_UNSUPPORTED, "it does not take these types")
}

// ---- A step --------------------------------------------------------------------------------------------------------------

unsafe extern "C" fn sums(
    _this: *mut c_void,
    args: *const gannet_update_args,
    _round: u32,
    sums: *mut f64,
    _error: *mut gannet_error,
) -> i32 {
    let args = &*args;
    let grad = args.grad as *const f32;
    for k in 0..args.segment_count {
        let part = &*element(args.segments, args.segment_stride, k);
        let sum = sums.add((k * args.sum_count) as usize);
        for i in part.offset..part.offset + part.numel {
            let scaled = *grad.add(i as usize) as f64 * args.grad_scale;
            *sum += scaled * scaled;
        }
    }
    GANNET_OK
}

struct Loop {
    param: *mut f32,
    velocity: *mut f32,
    grad: *const f32,
    lr: f32,
    momentum: f32,
    factor: f32,
}

unsafe extern "C" fn shift(argument: *mut c_void, begin: u64, end: u64) -> i32 {
    let of = &*(argument as *const Loop);
    for i in begin as usize..end as usize {
        let velocity = of.velocity.add(i);
        *velocity = of.momentum * *velocity + of.factor * *of.grad.add(i);
        *of.param.add(i) -= of.lr * *velocity;
    }
    GANNET_OK
}

unsafe extern "C" fn update(this: *mut c_void, args: *const gannet_update_args, error: *mut gannet_error) -> i32 {
    let (own, args) = (&*(this as *const Steady), &*args);
    if args.segment_count == 0 {
        return GANNET_OK;
    }
    let norm = (*args.sums).sqrt();
    let usual = own.limit * *(*args.states.add(1) as *const f64);
    let limited = if usual > 0.0 && norm > usual { usual / norm } else { 1.0 };
    let mut of = Loop {
        param: args.param as *mut f32,
        velocity: *args.states as *mut f32,
        grad: args.grad as *const f32,
        lr: *args.hyper as f32,
        momentum: *args.hyper.add(1) as f32,
        factor: (args.grad_scale * limited) as f32,
    };
    let host = &*own.host;
    let status = (host.parallel_for)(host.context, 0, args.numel, 4096, shift, &mut of as *mut Loop as *mut c_void);
    if status == GANNET_OK {
        return GANNET_OK;
    }
    fail(error, status, "the host's parallel loop could not be run")
}

unsafe extern "C" fn end_step(this: *mut c_void, args: *const gannet_step_args, _error: *mut gannet_error) -> i32 {
    let (own, args) = (&*(this as *const Steady), &*args);
    if args.tensor_count == 0 {
        return GANNET_OK;
    }
    let norm = (*args.sums).sqrt();
    let mean = *args.states.add(1) as *mut f64;
    *mean = if *mean > 0.0 { own.decay * *mean + (1.0 - own.decay) * norm } else { norm };
    GANNET_OK
}

// ---- The table and the note ----------------------------------------------------------------------------------------------

static API: gannet_optimizer_api = gannet_optimizer_api {
    struct_size: size_of::<gannet_optimizer_api>() as u32,
    reserved: 0,
    create,
    destroy,
    describe,
    supports,
    update,
    sums: Some(sums),
    begin_step: None,
    end_step: Some(end_step),
    evaluate: None,
    reduces_gradients: None,
};
static DESCRIPTOR: Shared<gannet_descriptor> = Shared(gannet_descriptor {
    struct_size: size_of::<gannet_descriptor>() as u32,
    abi_major: 2,
    abi_minor: 0,
    magic: GANNET_MAGIC,
    kind: GANNET_KIND_OPTIMIZER,
    tier: GANNET_TIER_STABLE,
    name: text!("Steady"),
    device: text!("cpu"),
    version: text!("1.0.0"),
    fingerprint: text!(""),
    doc: text!("momentum with a limited gradient"),
    params: &SPECS as *const Shared<[gannet_param_spec; 4]> as *const gannet_param_spec,
    param_count: 4,
    param_stride: size_of::<gannet_param_spec>() as u64,
    api: &API as *const gannet_optimizer_api as *const c_void,
    flags: 0,
    reserved: 0,
    extensions: null(),
});

#[no_mangle]
pub static gannet_plugins_v2: Shared<[*const gannet_descriptor; 2]> =
    Shared([&DESCRIPTOR as *const Shared<gannet_descriptor> as *const gannet_descriptor, null()]);

const PROVIDES: [u8; 21] = *b"optimizer/steady@cpu\0";
const HEAD: u32 = size_of::<gannet_note>() as u32;

#[repr(C, align(8))]
pub struct Note {
    name_bytes: u32,
    content_bytes: u32,
    kind: u32,
    name: [u8; 8],
    padding_to_8: u32,
    head: gannet_note,
    fingerprint: [u8; 1],
    vendor: [u8; 1],
    provides: [u8; 21],
}

#[used]
#[link_section = ".note.gannet"]
static NOTE: Note = Note {
    name_bytes: 8,
    content_bytes: HEAD + 1 + 1 + PROVIDES.len() as u32,
    kind: 1,
    name: *b"Gannet\0\0",
    padding_to_8: 0,
    head: gannet_note {
        struct_size: HEAD,
        abi_major: 2,
        abi_minor: 0,
        magic: GANNET_MAGIC,
        tier: GANNET_TIER_STABLE,
        interface_versions: GANNET_INTERFACE_VERSIONS,
        required_features: 0,
        fingerprint: gannet_note_text { offset: HEAD, bytes: 0 },
        vendor: gannet_note_text { offset: HEAD + 1, bytes: 0 },
        provides: gannet_note_text { offset: HEAD + 2, bytes: PROVIDES.len() as u32 - 1 },
    },
    fingerprint: [0],
    vendor: [0],
    provides: PROVIDES,
};
