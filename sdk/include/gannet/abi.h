/* Gannet's plugin contract: the binary interface between the host and a plugin. C99, no dependencies.
 *
 * A plugin file is a shared object that exports one symbol, and that symbol is data:
 *
 *     const gannet_descriptor* const gannet_plugins_v2[];        null-terminated
 *
 * Each descriptor defines one plugin: its kind, name and device, its parameters, and a table of C functions. What the
 * host must know before it runs any of the file's code (magic, ABI, tier, fingerprint, what it provides) is in an ELF
 * note, `.note.gannet`, which GANNET_PLUGIN_NOTE writes. Plugins in C++ use gannet/sdk.hpp, which does all of this.
 *
 * Rules of the interface
 *  - Every struct begins with struct_size, and every array of structs comes with its stride (bytes from one element to the next).
 *    A new field is appended, and is read only if struct_size covers it: GANNET_HAS(). Moving a field requires a new ABI major.
 *  - A field newer than 2.0 is inside `#if GANNET_TARGET_MINOR >= n`, where n is the minor that added it. The author defines
 *    GANNET_TARGET_MINOR before the first include, as the oldest minor that has every field the plugin uses. Hosts of that
 *    minor and of later ones open the plugin; an older host does too if it knows every bit of the note's required_features.
 *  - A host accepts structs of at least their 2.0 size (GANNET_..._SIZE_2_0). It refuses unknown bits in
 *    flags and capabilities, and reserved fields that are not zero: only a later minor gives them a meaning.
 *  - A function that can fail returns a gannet_status; on failure it has written a sentence to the caller's gannet_error.
 *  - No exceptions, allocations or C++ types cross the interface. Strings are UTF-8, null-terminated, and owned by their creator.
 *  - What a descriptor points to must stay valid until the process ends: the host never unloads a plugin.
 *  - Optimizer, Scheduler, the host table and the envelope (params, descriptor, extensions, note) are frozen: no field of 2.0,
 *    2.1, 2.2 or 2.4 moves or changes its meaning within ABI 2. Fields and codes marked "provisional" are not covered by
 *    this promise yet: no device has run them. All of 2.3 is provisional: it freezes once a device has run it. Accelerator,
 *    Comm and Offload have interface versions of their own (GANNET_ACCELERATOR_VERSION ...), which must equal the host's.
 */
#ifndef GANNET_ABI_H
#define GANNET_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANNET_MAGIC UINT64_C(0x314e4c50544e4e47) /* "GNNTPLN1" in memory */
#define GANNET_ABI_MAJOR 2
#define GANNET_ABI_MINOR 4
#ifndef GANNET_TARGET_MINOR
#define GANNET_TARGET_MINOR GANNET_ABI_MINOR
#endif
#if GANNET_TARGET_MINOR > GANNET_ABI_MINOR
#error "GANNET_TARGET_MINOR is newer than this header: install the SDK of that minor"
#endif

/* Whether the struct at `pointer`, of type `type`, is long enough to contain `field`. */
#define GANNET_HAS(pointer, type, field) ((pointer)->struct_size >= offsetof(type, field) + sizeof((pointer)->field))

/* Features that a plugin requires of a host, one bit each, in gannet_note::required_features: a
 * host that lacks one refuses the file. ABI 2.0 has none. An optimizer needs no bit for a feature
 * that its capabilities declare: an older host refuses those that it does not know. */
#define GANNET_FEATURE_2_1 UINT64_C(1) /* the fields of 2.1, such as gannet_schedule_query::total_steps */
#define GANNET_KNOWN_FEATURES GANNET_FEATURE_2_1

/* The versions of the interfaces that are not frozen yet, and all three packed into one number, one byte each, for the note. */
#define GANNET_ACCELERATOR_VERSION 2
#define GANNET_COMM_VERSION 4
#define GANNET_OFFLOAD_VERSION 2
#define GANNET_INTERFACE_VERSIONS (GANNET_ACCELERATOR_VERSION | GANNET_COMM_VERSION << 8 | GANNET_OFFLOAD_VERSION << 16)

/* ---- Codes ---------------------------------------------------------------------------------------------------------*/

enum gannet_kind {
  GANNET_KIND_ACCELERATOR = 1,
  GANNET_KIND_OPTIMIZER = 2,
  GANNET_KIND_SCHEDULER = 3,
  GANNET_KIND_OFFLOAD = 4,
  GANNET_KIND_COMM = 5
};

enum gannet_tier {
  GANNET_TIER_STABLE = 1, /* does not link LibTorch: works with any compiler and any LibTorch */
  GANNET_TIER_PINNED = 2  /* may link LibTorch: its fingerprint must equal the host's, field by field */
};

enum gannet_status {
  GANNET_OK = 0,
  GANNET_INVALID_ARGUMENT = 1,
  GANNET_UNSUPPORTED = 2, /* a valid request that this plugin does not support */
  GANNET_OUT_OF_MEMORY = 3,
  GANNET_IO_ERROR = 4,
  GANNET_TIMEOUT = 5,
  GANNET_PEER_LOST = 6,   /* another rank died or closed its connection */
  GANNET_UNAVAILABLE = 7, /* the hardware or its driver is missing */
  GANNET_INTERNAL = 8
};

enum gannet_dtype {
  GANNET_DTYPE_NONE = 0,
  GANNET_FLOAT32 = 1,
  GANNET_FLOAT64 = 2,
  GANNET_FLOAT16 = 3,
  GANNET_BFLOAT16 = 4,
  GANNET_INT8 = 5,
  GANNET_UINT8 = 6,
  GANNET_INT16 = 7,
  GANNET_INT32 = 8,
  GANNET_INT64 = 9,
  GANNET_BOOL = 10
};

enum gannet_reduce_op {
  GANNET_SUM = 1,
  GANNET_MAX = 2,
  GANNET_MIN = 3,
  GANNET_AVERAGE = 4,          /* the sum divided by the number of ranks; floating-point types only */
  GANNET_PREMULTIPLIED_SUM = 5 /* the sum of factor * element; floating-point types only */
};

enum gannet_log_level { GANNET_LOG_DEBUG = 1, GANNET_LOG_INFO = 2, GANNET_LOG_WARNING = 3, GANNET_LOG_ERROR = 4 };

/* Where a callee writes the sentence that explains a failure. The caller owns the buffer; longer text is truncated. */
typedef struct gannet_error {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t capacity; /* size of `message` in bytes, including the terminating null */
  char* message;
} gannet_error;

/* ---- Parameters ----------------------------------------------------------------------------------------------------*/

enum gannet_param_type {
  GANNET_PARAM_BOOL = 1,
  GANNET_PARAM_INT = 2,
  GANNET_PARAM_FLOAT = 3,
  GANNET_PARAM_STRING = 4,
  /* A JSON list; a single value is a list of one element, unless `length` requires another number. */
  GANNET_PARAM_FLOAT_LIST = 5,
  GANNET_PARAM_INT_LIST = 6,
  GANNET_PARAM_STRING_LIST = 7
};

enum gannet_param_flag {
  GANNET_PARAM_REQUIRED = 1u << 0,
  GANNET_PARAM_NULLABLE = 1u << 1, /* JSON null is allowed and means: not set */
  GANNET_PARAM_HAS_MIN = 1u << 2,
  GANNET_PARAM_HAS_MAX = 1u << 3,
  GANNET_PARAM_MIN_EXCLUSIVE = 1u << 4,
  GANNET_PARAM_MAX_EXCLUSIVE = 1u << 5,
  /* FLOAT, or FLOAT_LIST with a fixed length: a hyperparameter that may change between steps. The host
   * keeps its current value for each parameter group, and a schedule or the user may change it. Each
   * update receives all of these values as doubles, in declaration order, with lists flattened. */
  GANNET_PARAM_DYNAMIC = 1u << 6,
  GANNET_PARAM_DEPRECATED = 1u << 7
};

/* The meaning of a dynamic parameter, independent of its name: schedules set values by role. */
enum gannet_param_role {
  GANNET_ROLE_NONE = 0,
  GANNET_ROLE_LEARNING_RATE = 1,
  GANNET_ROLE_BETA1 = 2, /* decay rate of the first moment */
  GANNET_ROLE_BETA2 = 3, /* decay rate of the second moment */
  GANNET_ROLE_MOMENTUM = 4,
  GANNET_ROLE_WEIGHT_DECAY = 5
};
#define GANNET_ROLE_COUNT 6

/* One parameter that the config's "params" may set for this plugin. The host parses, converts and checks it. */
typedef struct gannet_param_spec {
  uint32_t struct_size;
  uint32_t type;   /* gannet_param_type */
  uint32_t flags;  /* gannet_param_flag */
  uint32_t length; /* lists: the exact number of elements; 0: any number */
  const char* name;
  const char* doc;          /* one line */
  const char* default_json; /* the default as JSON ("[0.9, 0.999]"); null: no default, so the parameter is unset unless given */
  const char* choices;      /* STRING, STRING_LIST: the allowed values, separated by '|'; null: any */
  double min;
  double max;
  const uint32_t* roles; /* DYNAMIC: the gannet_param_role of the number, or of each list element; null: no roles */
} gannet_param_spec;

/* A parsed and checked value. The plugin gets one for every declared parameter, in declaration order. */
typedef struct gannet_param_value {
  uint32_t struct_size;
  uint32_t type;     /* gannet_param_type */
  uint32_t is_set;   /* 0: null, or neither a value nor a default */
  uint32_t is_given; /* 1: present in the config; 0: the default */
  const char* name;
  int64_t integer;    /* BOOL (0 or 1), INT */
  double number;      /* FLOAT, INT */
  const char* string; /* STRING */
  const double* list; /* FLOAT_LIST, INT_LIST */
  uint64_t list_count;
  const int64_t* integers;    /* INT_LIST [list_count] */
  const char* const* strings; /* STRING_LIST [list_count] */
} gannet_param_value;

typedef struct gannet_params {
  uint32_t struct_size;
  uint32_t reserved;
  const gannet_param_value* values;
  uint64_t count;
  uint64_t stride;
} gannet_params;

/* ---- The host, as a plugin sees it -----------------------------------------------------------------------------------*/

/* A loop body: processes [begin, end). Returns a gannet_status; must not throw. */
typedef int32_t (*gannet_loop_body)(void* argument, uint64_t begin, uint64_t end);

enum gannet_host_group { GANNET_GROUP_DATA = 0 /* the ranks that share the work on the same parameters */ };

enum gannet_host_operation {
  GANNET_HOST_ALL_REDUCE = 1,     /* recv[count] = reduce_op over the ranks' send[count]; send may equal recv */
  GANNET_HOST_BROADCAST = 2,      /* recv[count] on every rank = recv[count] of `root` */
  GANNET_HOST_ALL_GATHER = 3,     /* recv[size * count] = send[count] of every rank, in rank order */
  GANNET_HOST_REDUCE_SCATTER = 4, /* recv[count] = this rank's part of reduce_op over the ranks' send[size * count] */
  GANNET_HOST_ALL_TO_ALL = 5      /* recv[size * count]: part i comes from rank i, and part i of send goes to rank i */
};

/* A collective for plugins that are not a Comm, on whatever Comm is in use. Its buffers are in the plugin's device memory. */
typedef struct gannet_host_collective {
  uint32_t struct_size;
  uint32_t operation; /* gannet_host_operation */
  uint32_t group;     /* gannet_host_group */
  uint32_t dtype;     /* gannet_dtype */
  uint32_t reduce_op; /* gannet_reduce_op: SUM, MAX, MIN, AVERAGE */
  uint32_t root;
  const void* send;
  void* recv;
  uint64_t count; /* elements */
  void* stream;   /* the native stream on which the buffers were produced; null on the CPU */
} gannet_host_collective;

typedef struct gannet_host {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  void* context; /* first argument of every function below */

  void (*log)(void* context, int32_t level, const char* message);

  /* Splits [begin, end) into chunks that are multiples of `grain` (except the last) and runs `body` on the host's threads;
   * returns the first status other than GANNET_OK. Call it only from the thread on which the host called the plugin. */
  int32_t (*parallel_for)(void* context, uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument);
  uint32_t (*thread_count)(void* context);

  /* Host memory, whatever the plugin's device is; null if it cannot be allocated. Device memory comes only from what an optimizer
   * describes: its states and its workspace, which the host takes from LibTorch's allocator, so they count as the engine's. */
  void* (*allocate)(void* context, uint64_t bytes, uint64_t alignment);
  void (*deallocate)(void* context, void* pointer);

  /* The rank of the calling process in a group, and the group's size. */
  uint32_t (*rank)(void* context, uint32_t group);
  uint32_t (*world_size)(void* context, uint32_t group);
  /* Returns when this rank's part is done: recv is complete for work queued on the stream from now on, or for the host if the
   * stream is null. Allowed in an optimizer's begin_step and end_step, which run on every rank of the group, and in an update
   * that averages gradients itself; elsewhere GANNET_INTERNAL. All ranks must make the same calls in the same order. */
  int32_t (*collective)(void* context, const gannet_host_collective* args, gannet_error* error);
#if GANNET_TARGET_MINOR >= 4
  /* Since 2.4. Shows a number of this step (an estimated learning rate, a trust ratio) in the run's metrics, as "optimizer/NAME".
   * Allowed in an optimizer's begin_step and end_step, elsewhere GANNET_INTERNAL. `name`: 1 to 64 letters, digits,
   * '_', '-', '.', '/'. The values of rank 0 are shown; with several parameter groups the name is "optimizer/group0/NAME". */
  int32_t (*metric)(void* context, const char* name, double value, gannet_error* error);
#endif
} gannet_host;

/* ---- Optimizer -------------------------------------------------------------------------------------------------------*/

/* One object serves one parameter group. In each step that changes the model, the host calls on every rank:
 *
 *     begin_step                once
 *     sums                      once per round for every piece of the rank's share of the group, however many pieces there are
 *     update                    once for every piece of that share
 *     end_step                  once
 *
 * How the group is cut into pieces depends on the number of ranks, the ZeRO stage and the tier that holds its arrays; a plugin's
 * results must not, except for the order of sums. Replicated states (PER_TENSOR, SCALAR, PER_ROW, PER_COLUMN), which every rank
 * has in full, are therefore written only in begin_step and end_step, with the same values on every rank; update reads them.
 *
 * Rows and columns. A tensor is viewed as a stack of matrices: its last dimension is a matrix's columns, the one
 * before it a matrix's rows, and all others count matrices. A vector is one row, a scalar one element. Row r of
 * a tensor consists of the elements [r * columns, (r + 1) * columns); element e is in row e / columns of its
 * tensor, and in column e / (matrix_rows * columns) * columns + e % columns. The rows of a group's tensors are
 * numbered consecutively, in tensor order, and so are the columns: gannet_tensor::first_row and first_column. */

enum gannet_optimizer_capability {
  /* The new value of an element depends only on that element's parameter, gradient and states, on sums, and on states that are
   * not PER_ELEMENT: any range will do. Without this bit, every tensor is whole in one range, as with NEEDS_WHOLE_TENSOR. */
  GANNET_OPTIMIZER_ELEMENTWISE = 1u << 0,
  /* Each tensor must be whole in one range (Muon). Excludes ELEMENTWISE. */
  GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR = 1u << 1,
  /* For the 1-bit family. In the steps that gannet_optimizer_api::reduces_gradients selects, update() gets the rank's own
   * gradient. It averages over the ranks itself, with the host's collectives, or leaves that to a later step: see
   * gannet_gradient_reduction. Every rank has all parameters and states: ZeRO stage 0. With several ranks, all get the same
   * pieces in the same order, each tensor whole in one, and a piece's numel is a multiple of 32 * world_size: each rank's equal
   * part is aligned and, at one bit per element, a whole number of bytes. Gaps between segments are zero padding that is part of
   * no tensor. args->step counts the group's updates. A step with a non-finite gradient on any rank is skipped on all; clipping
   * uses the root mean square of the ranks' gradient norms. With one rank, nothing is averaged and pieces are arbitrary. */
  GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION = 1u << 2
#if GANNET_TARGET_MINOR >= 1
  ,
  /* Draws random numbers from gannet_update_args::seed, which is 0 without this bit. */
  GANNET_OPTIMIZER_USES_SEED = 1u << 3,
  /* Requests a workspace: gannet_optimizer_description::workspace_bytes and workspace_bytes_per_element. */
  GANNET_OPTIMIZER_USES_WORKSPACE = 1u << 4
#endif
#if GANNET_TARGET_MINOR >= 2
  ,
  /* A step may compute its gradient at parameters other than those it updates (SAM): gannet_optimizer_api::perturb
   * writes them; the host restores the originals before update(). Excludes OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_PERTURBS = 1u << 5,
  /* Some steps need a second gradient, from another loss (Sophia): gannet_optimizer_api::wants_second_gradient
   * selects them, and gannet_update_args::second_grad points to it. Excludes OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_SECOND_GRADIENT = 1u << 6
#endif
#if GANNET_TARGET_MINOR >= 3
  ,
  /* Provisional: freezes once a device has run it. Processes several pieces in one call, for example in
   * one launch for many tensors: the host calls gannet_optimizer_api::update_many and sums_many instead of
   * update() and sums() for pieces that are in memory at the same time. Excludes OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_TAKES_LISTS = 1u << 7,
  /* Provisional: freezes once a device has run it. Reads the step's numbers from the memory that holds the piece's arrays,
   * so a recorded launch can be replayed with new ones: gannet_update_args::device_numbers. Excludes OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS = 1u << 8
#endif
#if GANNET_TARGET_MINOR >= 4
  ,
  /* Needs the step's loss: gannet_update_args::loss, which is NaN without this bit. Costs a collective per step. */
  GANNET_OPTIMIZER_USES_LOSS = 1u << 9
#endif
};

#if GANNET_TARGET_MINOR >= 3
/* Provisional: freezes once a device has run it. Indices into gannet_update_args::device_numbers. */
enum gannet_device_number {
  GANNET_NUMBER_SKIP = 0,       /* 1: update() must change nothing; else 0 */
  GANNET_NUMBER_GRAD_SCALE = 1, /* gannet_update_args::grad_scale */
  GANNET_NUMBER_STEP = 2,       /* gannet_update_args::step */
  GANNET_NUMBER_HYPER = 3       /* the first element of gannet_update_args::hyper; the others follow */
};
#endif

#if GANNET_TARGET_MINOR >= 2
/* The pass in which a piece is processed, or for which a sum is needed: gannet_update_args::pass, gannet_sum_spec::pass. */
enum gannet_pass {
  GANNET_PASS_UPDATE = 0, /* the sums() and update() of a step */
  GANNET_PASS_PERTURB = 1 /* the sums() and perturb() before them */
};
#endif

/* Who averages a step's gradients over the ranks: gannet_optimizer_api::reduces_gradients. */
enum gannet_gradient_reduction {
  GANNET_REDUCED_BY_HOST = 0,   /* the host: update() gets averaged gradients */
  GANNET_REDUCED_BY_UPDATE = 1, /* update() averages what it sends; afterwards all ranks have the same parameters */
  /* A local step: gradients are not averaged, and no collective is allowed. Each rank updates its own parameters, which then
   * differ until a REDUCED_BY_UPDATE step makes them equal; no step before that is REDUCED_BY_HOST. LOCAL states differ as well.
   * A checkpoint has every rank's own values. evaluate(), which is required, gives the weights to use, the same on all ranks. */
  GANNET_REDUCED_LATER = 2
};

enum gannet_state_extent {
  GANNET_STATE_PER_ELEMENT = 1,
  GANNET_STATE_PER_TENSOR = 2, /* one per tensor of the group, at index gannet_tensor::index */
  GANNET_STATE_SCALAR = 3,     /* one per parameter group */
  GANNET_STATE_PER_ROW = 4,    /* one per row of the group's tensors, at index gannet_tensor::first_row + the row's number */
  GANNET_STATE_PER_COLUMN = 5, /* likewise per column */
  GANNET_STATE_PER_BLOCK = 6   /* one per gannet_state_spec::block elements of a tensor: scales of
                                * 8-bit states. A tensor's last block may have fewer elements. */
#if GANNET_TARGET_MINOR >= 1
  /* One square per matrix of a tensor, for Shampoo and SOAP statistics. Shapes: ROW_SQUARE
   * [matrices][matrix_rows][matrix_rows], COLUMN_SQUARE [matrices][columns][columns]. Requires
   * NEEDS_WHOLE_TENSOR. Stored where the tensor is updated: the owning rank's update() writes it; sums()
   * and evaluate() read it (gannet_update_args::squares). Starts as initial_value times the identity.
   * None for 0-D and 1-D tensors, or if it would have more than gannet_state_spec::limit rows. */
  ,
  GANNET_STATE_ROW_SQUARE = 7,
  GANNET_STATE_COLUMN_SQUARE = 8
#endif
#if GANNET_TARGET_MINOR >= 4
  /* One low-rank factor per matrix of a tensor, for the projections of GaLore and APOLLO. Shapes: ROW_FACTOR
   * [matrices][matrix_rows][width], COLUMN_FACTOR [matrices][columns][width], where width is gannet_state_spec::limit, or the
   * smaller of matrix_rows and columns if that is less. Each element starts as initial_value. Otherwise as squares. */
  ,
  GANNET_STATE_ROW_FACTOR = 9,
  GANNET_STATE_COLUMN_FACTOR = 10
#endif
};

enum gannet_state_flag {
  /* PER_ELEMENT: initialised with the master parameter's value before a tensor's first update. */
  GANNET_STATE_FROM_PARAMETER = 1u << 0,
  /* With OWNS_GRAD_REDUCTION, PER_ELEMENT. OF_RANK: every rank has its own values (its compression error); when
   * resumed on a different number of ranks, each rank gets their mean. SERVED: a rank has only the elements that
   * it averages for all ranks: the rank-th of world_size equal parts of each piece, [numel / world_size]. */
  GANNET_STATE_OF_RANK = 1u << 1,
  GANNET_STATE_SERVED = 1u << 2,
  /* LOCAL: every rank has its own values while the parameters differ after local steps (GANNET_REDUCED_LATER), and the same
   * values otherwise. When resumed on a different number of ranks, each rank gets the means of parameters and states. */
  GANNET_STATE_LOCAL = 1u << 3
};

/* A state of the optimizer. The host owns the memory: it allocates, shards, offloads and checkpoints it, and passes
 * raw pointers. Replicated states are in host memory; PER_ELEMENT and PER_BLOCK states are where the update runs. */
typedef struct gannet_state_spec {
  uint32_t struct_size;
  uint32_t dtype;   /* gannet_dtype; GANNET_DTYPE_NONE: the master parameter's if PER_ELEMENT, otherwise fp32 */
  uint32_t extent;  /* gannet_state_extent */
  uint32_t flags;   /* gannet_state_flag */
  const char* name; /* its name in checkpoints: "exp_avg" */
  double initial_value;
  uint64_t block; /* PER_BLOCK: elements per value, a power of two that divides the description's range_alignment; else 0 */
#if GANNET_TARGET_MINOR >= 1
  uint64_t limit; /* since 2.1. Squares: the maximum number of rows; factors (2.4): the width; each 1 to 16384. Others: 0 */
#endif
} gannet_state_spec;

enum gannet_sum_scope {
  GANNET_SUM_OF_TENSOR = 1, /* one for each tensor */
  GANNET_SUM_OF_GROUP = 2,  /* one for the parameter group */
  GANNET_SUM_OF_MODEL = 3,  /* one for all groups, which must all request the same sums */
  /* One for each row or column of the group, stored in gannet_update_args::lines instead of `sums`. */
  GANNET_SUM_OF_ROW = 4,
  GANNET_SUM_OF_COLUMN = 5
};

/* A number that the plugin needs for whole tensors although it sees only parts of them: LAMB's norms. */
typedef struct gannet_sum_spec {
  uint32_t struct_size;
  uint32_t scope;     /* gannet_sum_scope */
  uint32_t reduce_op; /* how the parts are combined: GANNET_SUM, GANNET_MAX, GANNET_MIN */
  uint32_t round;     /* 0 for the first; the sums of a round are available in later rounds */
#if GANNET_TARGET_MINOR >= 2
  /* Since 2.2. gannet_pass. The sums of both passes are in one list, in the order of their rounds. During a pass, sums
   * of the other one have the value of a sum over no elements, and rounds without sums of the pass are not requested. */
  uint64_t pass;
#endif
} gannet_sum_spec;

/* A whole parameter of the group. Its pointers stay valid as long as the plugin's object exists. */
typedef struct gannet_tensor {
  uint32_t struct_size;
  uint32_t dimensions;
  uint64_t index;       /* in its group: 0, 1, ... A parameter that joins later is appended after the others. */
  uint64_t id;          /* unique in the process, the same on every rank */
  const char* name;     /* its name in the model: "h.0.attn.weight" */
  uint64_t numel;       /* of the whole tensor, however many ranks its parts are on */
  const int64_t* shape; /* [dimensions] */
  uint64_t columns;     /* of each of its matrices: the tensor has numel / columns rows */
  uint64_t matrix_rows; /* of each of its matrices: the tensor has numel / matrix_rows columns */
  uint64_t first_row;   /* index of its first row in the group */
  uint64_t first_column;
#if GANNET_TARGET_MINOR >= 1
  uint64_t seed; /* since 2.1. Derived from the tensor's name, so the same in every run: see gannet_update_args::seed */
#endif
} gannet_tensor;

typedef struct gannet_optimizer_context {
  uint32_t struct_size;
  uint32_t group; /* index of the object's parameter group */
  uint32_t group_count;
  uint32_t rank; /* in GANNET_GROUP_DATA */
  uint32_t world_size;
  uint32_t device; /* index of the device where the group's arrays are updated */
  const gannet_tensor* tensors;
  uint64_t tensor_count;
  uint64_t tensor_stride;
} gannet_optimizer_context;

/* The requirements of the object. Its lists must stay valid as long as the object exists. */
typedef struct gannet_optimizer_description {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t capabilities; /* gannet_optimizer_capability */
  const gannet_state_spec* states;
  uint64_t state_count;
  uint64_t state_stride;
  const gannet_sum_spec* sums; /* in the order of their rounds */
  uint64_t sum_count;
  uint64_t sum_stride;
  /* A range begins at a multiple of this number in its tensor, and ends at one or at the tensor's end:
   * for states that are stored in blocks of elements. A power of two, at most 4096; 0 or 1: anywhere. */
  uint64_t range_alignment;
#if GANNET_TARGET_MINOR >= 1
  /* Since 2.1, with USES_WORKSPACE. For a piece of n elements the plugin gets workspace_bytes + n *
   * workspace_bytes_per_element bytes, for begin_step and end_step workspace_bytes. At most 2^40 and 4096. */
  uint64_t workspace_bytes;
  uint64_t workspace_bytes_per_element;
#endif
} gannet_optimizer_description;

/* The arguments of begin_step and end_step. */
typedef struct gannet_step_args {
  uint32_t struct_size;
  uint32_t group;
  uint64_t step;     /* updates of the group, including this one: 1 at the first */
  double grad_scale; /* see gannet_update_args */
  const double* hyper;
  uint64_t hyper_count;
  const gannet_tensor* tensors;
  uint64_t tensor_count;
  uint64_t tensor_stride;
  /* [state_count]: PER_TENSOR [tensor_count], SCALAR [1], PER_ROW [rows of the group], PER_COLUMN [columns of the group]; null
   * for the others */
  void* const* states;
  uint64_t state_count;
  const double* sums; /* [tensor_count][sum_count] in end_step, null in begin_step. Every row has the group and model sums. */
  uint64_t sum_count;
  void* stream;
  const double* const* lines; /* [sum_count] in end_step, null in begin_step: the row and column sums, see gannet_update_args */
#if GANNET_TARGET_MINOR >= 1
  uint64_t seed;   /* since 2.1. The same as for the step's pieces: see gannet_update_args */
  void* workspace; /* since 2.1. [workspace_bytes] host memory, aligned to 64 bytes, contents unspecified; null if none */
  uint64_t workspace_bytes; /* since 2.1 */
#endif
#if GANNET_TARGET_MINOR >= 4
  double loss;          /* since 2.4. As in gannet_update_args */
  uint64_t total_steps; /* since 2.4. The planned number of updates of the run; 0: unknown */
#endif
} gannet_step_args;

/* The position of a tensor, or of a part of one, in a range. */
typedef struct gannet_segment {
  uint32_t struct_size;
  uint32_t dimensions;
  uint64_t tensor_index;  /* gannet_tensor::index */
  uint64_t tensor_id;     /* gannet_tensor::id */
  uint64_t offset;        /* elements from the start of the range */
  uint64_t numel;         /* elements of the tensor that are in the range */
  uint64_t tensor_offset; /* elements of the tensor that precede the range */
  uint64_t tensor_numel;
  const int64_t* shape; /* [dimensions] of the whole tensor */
  const char* name;
  uint64_t columns, matrix_rows, first_row, first_column; /* as in gannet_tensor */
#if GANNET_TARGET_MINOR >= 1
  uint64_t seed; /* since 2.1. As in gannet_tensor */
#endif
} gannet_segment;

/* One piece of a parameter group. param, grad, out and PER_ELEMENT states have numel elements, are contiguous and, on
 * the CPU, aligned to 64 bytes. In a piece, every tensor begins at a multiple of the description's range_alignment,
 * so the blocks of a segment are [offset / block, (offset + numel + block - 1) / block) of a PER_BLOCK state. */
typedef struct gannet_update_args {
  uint32_t struct_size;
  uint32_t param_dtype; /* of `param`, the master */
  uint32_t grad_dtype;
  uint32_t out_dtype; /* GANNET_DTYPE_NONE: `out` is null */
  uint64_t numel;
  void* param;         /* updated in place by update(), never written by sums() */
  const void* grad;    /* never written */
  void* out;           /* receives the new parameter, rounded to out_dtype */
  void* const* states; /* [state_count], in the order of the description: PER_ELEMENT [numel], PER_BLOCK [blocks], others
                        * as in gannet_step_args. update() writes PER_ELEMENT and PER_BLOCK states; sums() writes none. */
  uint64_t state_count;
  double grad_scale; /* the gradient is grad * grad_scale: averaging, unscaling and clipping in one factor */
  uint64_t step; /* updates of these tensors, including this one: 1 at the first. It is lower for tensors that joined later. */
  const double* hyper; /* [hyper_count] the dynamic parameters: see GANNET_PARAM_DYNAMIC */
  uint64_t hyper_count;
  const gannet_segment* segments;
  uint64_t segment_count;
  uint64_t segment_stride;
  void* stream;       /* the device's native stream on which the buffers were produced: queue the update there; null on the CPU */
  const double* sums; /* [segment_count][sum_count] of the rounds so far, group and model sums in every row; host memory */
  uint64_t sum_count;
  uint32_t group;
  uint32_t device; /* index of the device that holds the arrays */
  /* [sum_count], host memory: for each sum of scope ROW or COLUMN, one number per row or column of the
   * group; null for other sums, which are in `sums`. sums() combines this piece's share into the numbers of
   * its round, in place; those of earlier rounds are complete. Null if the description has no such sum. */
  double* const* lines;
#if GANNET_TARGET_MINOR >= 1
  /* Since 2.1, with USES_SEED, else 0. Depends on the run and the step; the same for all pieces, on all ranks, and in a
   * resumed run. A rule that computes an element's random numbers as a function of (seed, gannet_segment::seed, the element's
   * index in its tensor), instead of drawing them from a sequence, has the same results however the group is cut. */
  uint64_t seed;
  /* Since 2.1, with USES_WORKSPACE, else null. [workspace_bytes] for this call, in the memory of the piece's arrays,
   * aligned to 64 bytes. Other calls use the same memory, so its contents are unspecified. On a device: provisional. */
  void* workspace;
  uint64_t workspace_bytes;
  /* Since 2.1. [segment_count][state_count] if the description has squares or factors, else null. Each entry points
   * to those of the segment's tensor; it is null if the tensor has none, and for other states.
   * (For squares and factors, it is the entry in `states` that is null.) On a device: provisional. */
  void* const* squares;
#endif
#if GANNET_TARGET_MINOR >= 2
  /* Since 2.2, with SECOND_GRADIENT in update() of a step that wants one, else null. [numel] of param_dtype, in the memory of
   * `param`; read-only. The second loss's gradient: averaged and unscaled, neither multiplied by grad_scale nor clipped. */
  const void* second_grad;
  uint64_t pass; /* since 2.2. gannet_pass */
#endif
#if GANNET_TARGET_MINOR >= 3
  /* Since 2.3, provisional: freezes once a device has run it. With TAKES_DEVICE_NUMBERS in sums(), update() and perturb(),
   * else null and 0. [device_number_count], indexed by gannet_device_number, in the memory that holds the piece's arrays:
   * ready for work on the stream. It is host memory on the CPU, and if a device's group is updated on the host. Read-only,
   * and valid as long as the arrays. `grad_scale` is then NaN, `step` 0, `hyper` null and `hyper_count` 0: a number that
   * host code read during the call would keep its old value in a replayed launch. begin_step, end_step and evaluate get
   * theirs as before. Today's host decides to skip a step before it calls anything: it always passes a skip of 0. */
  const double* device_numbers;
  uint64_t device_number_count;
#endif
#if GANNET_TARGET_MINOR >= 4
  /* Since 2.4, with USES_LOSS. The step's loss, as the metrics have it: the mean over its micro-batches and all ranks, without
   * the loss scale; the same on every rank. NaN without USES_LOSS, in evaluate() and perturb(), with device numbers, and for a
   * step whose gradients did not come from a loss that the engine was given. */
  double loss;
  uint64_t total_steps; /* since 2.4. The planned number of updates of the run, as for schedules; 0: unknown */
#endif
} gannet_update_args;

typedef struct gannet_optimizer_api {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t (*create)(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error);
  void (*destroy)(void* self);
  /* Called once before anything else, and again when parameters join the group: the answer must then be the same. */
  int32_t (*describe)(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                      gannet_error* error);
  /* GANNET_OK if update() supports this combination; otherwise GANNET_UNSUPPORTED with a sentence. */
  int32_t (*supports)(void* self, uint32_t param_dtype, uint32_t grad_dtype, uint32_t out_dtype, gannet_error* error);
  int32_t (*update)(void* self, const gannet_update_args* args, gannet_error* error);
  /* For a description with sums, else null: combines this piece's share of the round's sums into
   * `sums` [segment_count][sum_count], each by its reduce_op; the host combines pieces and ranks. */
  int32_t (*sums)(void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error);
  /* Either may be null if it has nothing to do. */
  int32_t (*begin_step)(void* self, const gannet_step_args* args, gannet_error* error);
  int32_t (*end_step)(void* self, const gannet_step_args* args, gannet_error* error);
  /* Null if the trained weights are the ones to use. Otherwise writes the weights to evaluate with to `out`, in the
   * master's dtype (Schedule-Free, weight averaging), as a function of the piece's param, states and hyperparameters,
   * which it must not change. grad, sums and SERVED states are null; step is the number of updates so far. With
   * OWNS_GRAD_REDUCTION, it is called only after local steps, and must write the same weights on all ranks. */
  int32_t (*evaluate)(void* self, const gannet_update_args* args, gannet_error* error);
  /* With OWNS_GRAD_REDUCTION, else null: who averages the gradients of this step (gannet_step_args::step),
   * as a gannet_gradient_reduction. A pure function of the params and the step. */
  int32_t (*reduces_gradients)(void* self, uint64_t step, uint32_t* reduces, gannet_error* error);
#if GANNET_TARGET_MINOR >= 2
  /* Since 2.2. With PERTURBS, else null: writes the parameters at which to compute the step's gradient to `out`, in
   * the master's dtype, as a function of the piece's param, gradient, states, hyperparameters and the sums of
   * GANNET_PASS_PERTURB, none of which it may change. `step` and `grad_scale` are those that update() would get,
   * except for clipping; begin_step and end_step are not called for it. The host keeps the parameters and has restored
   * them, bit for bit, when it calls update(). A step that the program does not perturb is only an update. */
  int32_t (*perturb)(void* self, const gannet_update_args* args, gannet_error* error);
  /* Since 2.2. With SECOND_GRADIENT, else null: writes 1 if update() of this step (gannet_step_args::step)
   * needs a second gradient, else 0. A pure function of the params and the step. */
  int32_t (*wants_second_gradient)(void* self, uint64_t step, uint32_t* wants, gannet_error* error);
#endif
#if GANNET_TARGET_MINOR >= 3
  /* Since 2.3, provisional: freezes once a device has run it. With TAKES_LISTS, else not called: update() of `count` pieces of
   * one group in one step, `stride` bytes from one to the next. The results must equal those of one update() per piece, in any
   * order: they must not depend on which other pieces are in the list, nor on a piece's index in it. Pieces share replicated
   * states, hyperparameters, device numbers and lines; each has its own part of the workspace. The host calls update() for
   * pieces that are not in memory together (a tier without addresses, or a device's group that is updated on the host). */
  int32_t (*update_many)(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, gannet_error* error);
  /* Since 2.3, provisional: freezes once a device has run it. With TAKES_LISTS and sums in the
   * description, else not called: does sums() for each piece i, into sums[i]. */
  int32_t (*sums_many)(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, uint32_t round,
                       double* const* sums, gannet_error* error);
#endif
} gannet_optimizer_api;

/* ---- Scheduler -------------------------------------------------------------------------------------------------------*/

typedef struct gannet_schedule_query {
  uint32_t struct_size;
  uint32_t group; /* index of the parameter group */
  uint32_t group_count;
  uint32_t base_count; /* the host's GANNET_ROLE_COUNT */
  uint64_t step;       /* number of updates already applied: 0 asks for the values of the first update */
  const double* base;  /* [base_count] by role: the group's values in the optimizer's params; NaN if it has none */
  const double* state; /* [state_count] as advance() left it */
  uint64_t state_count;
#if GANNET_TARGET_MINOR >= 1
  uint64_t total_steps; /* since 2.1. The planned number of updates of the run; 0: unknown */
#endif
} gannet_schedule_query;

/* The arguments of advance(): one step of a schedule that has a state. */
typedef struct gannet_schedule_advance {
  uint32_t struct_size;
  uint32_t group_count;
  uint64_t step; /* the step that is reached: 1 at the first call */
  double metric; /* with NEEDS_METRIC, what the program measured; else NaN */
  double* state; /* [state_count], zeros at the first call; saved in checkpoints */
  uint64_t state_count;
#if GANNET_TARGET_MINOR >= 1
  uint64_t total_steps; /* since 2.1. As in gannet_schedule_query */
#endif
} gannet_schedule_advance;

typedef struct gannet_schedule_value {
  uint32_t struct_size;
  uint32_t value_count; /* the host's GANNET_ROLE_COUNT */
  uint64_t roles;       /* output: bit r is set if values[r] is */
  double* values;       /* output: [value_count] by role */
} gannet_schedule_value;

enum gannet_schedule_flag {
  /* The schedule follows a number that the program measures (a validation loss): it advances when
   * the program calls scheduler->step(metric), not with the updates. */
  GANNET_SCHEDULE_NEEDS_METRIC = 1u << 0
};

typedef struct gannet_schedule_description {
  uint32_t struct_size;
  uint32_t flags;          /* gannet_schedule_flag */
  uint64_t roles;          /* bits of roles that the optimizer must have, or the run fails before it begins */
  uint64_t optional_roles; /* bits of roles that are set if the optimizer has them; the user is warned if it has none of them */
  uint64_t state_count;    /* numbers kept from step to step, at most 4096: whatever is not a function of the step alone */
} gannet_schedule_description;

typedef struct gannet_scheduler_api {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t (*create)(const gannet_host* host, const gannet_params* params, uint32_t group_count, void** self, gannet_error* error);
  void (*destroy)(void* self);
  int32_t (*describe)(void* self, gannet_schedule_description* description, gannet_error* error);
  /* A pure function of the query. */
  int32_t (*value)(void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error);
  /* For a schedule with a state, else null: called once per step, with the same args on every rank. A pure function of them. */
  int32_t (*advance)(void* self, const gannet_schedule_advance* args, gannet_error* error);
} gannet_scheduler_api;

/* ---- Accelerator (version 2) -----------------------------------------------------------------------------------------*/

typedef struct gannet_device_info {
  uint32_t struct_size;
  int32_t torch_device_type; /* c10::DeviceType as a number: 0 CPU, 1 CUDA */
  uint32_t compute_major;
  uint32_t compute_minor;
  uint64_t memory_bytes;
  uint64_t free_bytes; /* 0: unknown (asking would initialise the device) */
  char name[128];
} gannet_device_info;

enum gannet_accelerator_capability {
  GANNET_ACCELERATOR_FP16 = 1u << 0,
  GANNET_ACCELERATOR_BF16 = 1u << 1,
  GANNET_ACCELERATOR_PINNED_MEMORY = 1u << 2, /* at::empty with pinned_memory returns memory that the device copies from */
  GANNET_ACCELERATOR_STREAMS = 1u << 3,       /* compute is asynchronous and ordered by streams */
  GANNET_ACCELERATOR_QUEUES = 1u << 4,        /* the table has the queue functions */
  /* Device memory is separate from host memory, so moving a buffer to the host frees device memory. */
  GANNET_ACCELERATOR_SEPARATE_MEMORY = 1u << 5
};

/* Values of gannet_accelerator_api::priority: UNSAID if none is set, DEVICE if it computes, NEVER if it is used only by name. */
enum gannet_accelerator_priority {
  GANNET_PRIORITY_NEVER = -1, /* or any negative number: "auto" never chooses it */
  GANNET_PRIORITY_HOST = 0,   /* the processor itself, which is always present */
  GANNET_PRIORITY_UNSAID = 50,
  GANNET_PRIORITY_DEVICE = 100
};

/* No tensor and no allocator crosses the interface: create() loads the vendor part of LibTorch into the process,
 * and device_info() reports its DeviceType. The host then uses LibTorch's own dispatch for memory and for compute,
 * on LibTorch's streams. In addition, the plugin has queues of its own, for copies that overlap compute. */
typedef struct gannet_accelerator_api {
  uint32_t struct_size;
  uint32_t version; /* GANNET_ACCELERATOR_VERSION */
  /* Loads the vendor part of LibTorch. Called once, before anything has asked LibTorch for a device. Fails with a reason:
   * GANNET_UNAVAILABLE if there is no driver or device, GANNET_UNSUPPORTED for a fault that "auto" warns about. */
  int32_t (*create)(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error);
  void (*destroy)(void* self);
  uint64_t (*capabilities)(void* self);
  uint32_t (*device_count)(void* self);
  int32_t (*device_info)(void* self, uint32_t device, gannet_device_info* info, gannet_error* error);
  int32_t (*set_device)(void* self, uint32_t device, gannet_error* error);
  int32_t (*synchronize)(void* self, uint32_t device, gannet_error* error);
  /* The native handle of the c10::Stream whose c10::Stream::id() is `stream_id`; 0 is the default stream. Null on a
   * device without streams (GANNET_ACCELERATOR_STREAMS), and only there: if the runtime's own handle of the default
   * stream is null, as CUDA's is, the plugin returns the runtime's other name for it (cudaStreamLegacy). */
  void* (*native_stream)(void* self, uint32_t device, int64_t stream_id);
  /* The Comm plugin that "auto" chooses on this accelerator if there are several processes. */
  const char* (*default_comm)(void* self);
  /* The device name of optimizer and comm plugins that work on this accelerator's memory; null: the accelerator's own name. */
  const char* (*plugin_device)(void* self);

  /* Queues: with GANNET_ACCELERATOR_QUEUES, all functions from queue_create to unpin are present; without it, all are null.
   *
   * A queue executes its work in submission order, asynchronously to the caller. Two queues, or a queue and a
   * compute stream, are ordered only by events and the wait functions. A queue is used by one thread at a time;
   * different queues, and any event, may be used from any thread. If work fails later, every event recorded after it
   * reports the failure; the queue skips the rest of its work, and so does a queue that waits for such an event. */
  int32_t (*queue_create)(void* self, uint32_t device, const char* name, void** queue, gannet_error* error);
  void (*queue_destroy)(void* self, void* queue); /* returns when the queue's work is over */
  /* Copies between any two places in host or device memory. The caller must neither change nor free
   * either buffer until the copy is over. The call may block if host memory is not pinned. */
  int32_t (*queue_copy)(void* self, void* queue, void* to, const void* from, uint64_t bytes, gannet_error* error);
  /* Records an event that is over when the queue has done all of its work so far. The event may outlive the queue. */
  int32_t (*event_record)(void* self, void* queue, void** event, gannet_error* error);
  void (*event_destroy)(void* self, void* event);
  int32_t (*event_query)(void* self, void* event, int32_t* is_over, gannet_error* error);
  int32_t (*event_wait)(void* self, void* event, gannet_error* error); /* blocks the calling thread */
  /* The queue's later work begins after the event is over. */
  int32_t (*queue_wait_event)(void* self, void* queue, void* event, gannet_error* error);
  /* queue_wait_stream: the queue's later work begins after the work submitted so far to a compute stream of its device (a
   * native handle). stream_wait_event: the stream's later work begins after the event. No-ops if compute is synchronous. */
  int32_t (*queue_wait_stream)(void* self, void* queue, void* stream, gannet_error* error);
  int32_t (*stream_wait_event)(void* self, void* stream, void* event, gannet_error* error);
  /* Page-locks host memory, so that copies from and to it run asynchronously to the host. unpin takes
   * the address that was passed to pin, and may be called only when no copy uses the memory. */
  int32_t (*pin)(void* self, void* address, uint64_t bytes, gannet_error* error);
  int32_t (*unpin)(void* self, void* address, gannet_error* error);

  /* "auto" chooses the usable accelerator with the highest priority; among equals, the first by name. */
  int32_t priority;
  uint32_t reserved;
#if GANNET_TARGET_MINOR >= 4
  /* Since 2.4; may be null. The native stream of a queue, on which a Comm submits a vendor library's work: it runs in order
   * with the queue's own work, and events that are recorded in the queue cover it. */
  void* (*queue_stream)(void* self, void* queue);
#endif
} gannet_accelerator_api;

/* ---- Comm (version 4) ------------------------------------------------------------------------------------------------*/

/* All ranks of a group pass the same operation, dtype, reduce operation and counts; a SEND passes
 * those of its RECV. A plugin need not detect a mismatch: what it then moves is undefined.
 *
 * `size`: ranks in the group; count, send and recv: see gannet_collective_args. Where a line names a list of counts, null means
 * `count` for every rank; otherwise the list has the number of elements of each rank's part, and the parts are contiguous. */
enum gannet_collective {
  GANNET_ALL_REDUCE = 1, /* recv[count] = op over the ranks' send[count]; send may equal recv */
  GANNET_BROADCAST = 2,  /* recv[count] on every rank = recv[count] of `peer` */
  /* Also in place: an all-gather's send, or a reduce-scatter's recv, may be this rank's part of the other buffer. */
  GANNET_ALL_GATHER = 3,     /* recv[size * count, or by recv_counts] = send[count] of every rank, in rank order */
  GANNET_REDUCE_SCATTER = 4, /* recv[count] = this rank's part of op over the ranks' send[size * count, or by send_counts] */
  GANNET_ALL_TO_ALL = 5, /* part i of send goes to rank i, part i of recv comes from rank i: see send_counts and recv_counts */
  GANNET_BARRIER = 6,
  /* Between two ranks. There are no tags: messages from one rank to another in a group are received
   * in the order in which they were sent, whatever else is in flight. Ranks that send to each other
   * must do so in one collective_many: two SENDs that wait for each other's RECV may deadlock. */
  GANNET_SEND = 7, /* send[count] to `peer` */
  GANNET_RECV = 8  /* recv[count] from `peer` */
};

/* The ranks' key-value store, provided by the host. Functions block for at most the store's time-out. */
typedef struct gannet_store {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*set)(void* context, const char* key, const void* bytes, uint64_t count, gannet_error* error);
  /* Waits for the key. Returns its bytes in a buffer that is valid until the next call on this thread. */
  int32_t (*get)(void* context, const char* key, const void** bytes, uint64_t* count, gannet_error* error);
  int32_t (*add)(void* context, const char* key, int64_t amount, int64_t* result, gannet_error* error);
  int32_t (*wait)(void* context, const char* key, uint64_t timeout_ms, gannet_error* error);
  int32_t (*check)(void* context, const char* key, int32_t* exists, gannet_error* error);
} gannet_store;

typedef struct gannet_rendezvous {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t world_size;
  uint32_t local_rank;
  uint64_t timeout_ms;
  const gannet_store* store; /* null when world_size is 1 */
  const char* host_address;  /* the address at which the other ranks reach this host; null: the plugin must find out */
  /* Since version 4. The device whose memory the Comm moves: it is already open, and the current device,
   * when create is called. Its accelerator's table has the queues and events that order a collective with
   * respect to the streams; the accelerator outlives the Comm. Null for a Comm that moves host memory. */
  const struct gannet_accelerator_api* accelerator;
  void* accelerator_self;
  uint32_t device;
  uint32_t reserved;
} gannet_rendezvous;

/* Append-only since version 3: a plugin reads a later field only if struct_size covers it. The lists (send_counts, recv_counts)
 * have `size` numbers and are read before the call returns; the buffers belong to the collective until it is over. */
typedef struct gannet_collective_args {
  uint32_t struct_size;
  uint32_t op;        /* gannet_collective */
  uint32_t dtype;     /* gannet_dtype */
  uint32_t reduce_op; /* gannet_reduce_op */
  uint32_t peer;      /* rank in the group: the root of a BROADCAST, the destination of a SEND, the source of a RECV */
  /* The type in which sums of 16-bit floating-point elements are accumulated: GANNET_FLOAT32 rounds once, at
   * the end; GANNET_DTYPE_NONE leaves it to the plugin, which may round every partial sum (see sum_dtype). */
  uint32_t sum_dtype;
  const void* send;
  void* recv;
  uint64_t count;              /* elements: see gannet_collective */
  void* stream;                /* the device's native stream on which the buffers were produced; null on the CPU */
  double factor;               /* PREMULTIPLIED_SUM */
  const uint64_t* send_counts; /* [size] elements, or null */
  const uint64_t* recv_counts; /* [size] elements, or null */
} gannet_collective_args;

typedef struct gannet_comm_counters {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t calls;
  uint64_t bytes_sent;
  uint64_t bytes_received;
} gannet_comm_counters;

typedef struct gannet_comm_api {
  uint32_t struct_size;
  uint32_t version; /* GANNET_COMM_VERSION */
  int32_t (*create)(const gannet_host* host, const gannet_params* params, const gannet_rendezvous* rendezvous, void** self,
                    gannet_error* error);
  void (*destroy)(void* self);
  /* Creates a group of these ranks, in this order. Every member calls it, and it is the first call that connects ranks:
   * create does not. `external`: a handle of the vendor's own communicator to use instead of creating one, or null. */
  int32_t (*group_create)(void* self, const uint32_t* ranks, uint32_t count, const char* name, void* external, void** group,
                          gannet_error* error);
  void (*group_destroy)(void* self, void* group);
  /* Starts a collective after the work submitted so far to args->stream. A group's collectives are called in the same order
   * on all its ranks, by one thread at a time; SEND and RECV in the same order on the two ranks that they connect. */
  int32_t (*collective)(void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error);
  /* Starts a batch of collectives that progress together, in no order among themselves: the safe form for exchanges, and the fast
   * one for many small gathers. One work for the whole batch. `args`: an array, `stride` bytes from one element to the next. */
  int32_t (*collective_many)(void* self, void* group, const gannet_collective_args* args, uint64_t count, uint64_t stride,
                             void** work, gannet_error* error);
  /* Completion for the host. work_wait: GANNET_TIMEOUT after timeout_ms leaves the work pending
   * (wait again or abort). work_query: whether work_wait would return at once; does not block. */
  int32_t (*work_wait)(void* self, void* work, uint64_t timeout_ms, gannet_error* error);
  int32_t (*work_query)(void* self, void* work, int32_t* is_over, gannet_error* error);
  /* Completion for the device: later work of the stream begins after the collective, and the host
   * does not wait. With a null stream, on a device without streams, the host waits, for at most the
   * rendezvous's time-out. The buffers still belong to the collective. */
  int32_t (*work_block)(void* self, void* work, void* stream, gannet_error* error);
  void (*work_free)(void* self, void* work);
  /* Ends everything in flight with an error, so that waiting threads return; afterwards only work_free,
   * group_destroy and destroy are allowed. May be called from any thread, concurrently with any other function. */
  void (*abort)(void* self);
  void (*counters)(void* self, gannet_comm_counters* counters);
  /* GANNET_FLOAT32 if sums of this 16-bit type are rounded once whatever args->sum_dtype is, the
   * type itself if partial sums are rounded, GANNET_DTYPE_NONE if the plugin does not reduce it. */
  uint32_t (*sum_dtype)(void* self, uint32_t dtype);

  /* Memory that the plugin moves faster than any other. All four functions are present, or all are null. allocate
   * is collective: every member of the group requests the same number of bytes, and the ranks of one host may
   * share the memory. A registered buffer is the caller's own; it stays registered until unregister_buffer. */
  int32_t (*allocate)(void* self, void* group, uint64_t bytes, void** memory, gannet_error* error);
  void (*deallocate)(void* self, void* group, void* memory);
  int32_t (*register_buffer)(void* self, void* group, void* buffer, uint64_t bytes, gannet_error* error);
  int32_t (*unregister_buffer)(void* self, void* group, void* buffer, gannet_error* error);
} gannet_comm_api;

/* ---- Offload (version 2) ---------------------------------------------------------------------------------------------*/

/* A tier that holds buffers while they are not in use. Reads and writes are asynchronous; several may be in flight at once. */
typedef struct gannet_offload_api {
  uint32_t struct_size;
  uint32_t version; /* GANNET_OFFLOAD_VERSION */
  int32_t (*create)(const gannet_host* host, const gannet_params* params, uint32_t rank, void** self, gannet_error* error);
  void (*destroy)(void* self);
  uint64_t (*alignment_bytes)(void* self); /* of buffers, offsets and sizes */
  int32_t (*allocate)(void* self, uint64_t bytes, const char* name, void** region, gannet_error* error);
  void (*release)(void* self, void* region);
  /* The address of the region's bytes if the tier can be addressed directly (host memory), else null. */
  void* (*address)(void* self, void* region);
  int32_t (*read)(void* self, void* region, uint64_t offset, void* buffer, uint64_t bytes, void** work, gannet_error* error);
  int32_t (*write)(void* self, void* region, uint64_t offset, const void* buffer, uint64_t bytes, void** work,
                   gannet_error* error);
  int32_t (*work_wait)(void* self, void* work, gannet_error* error); /* also frees the work */
} gannet_offload_api;

/* ---- The exported table and the note -----------------------------------------------------------------------------------*/

/* Information about a plugin in addition to its descriptor. The host reads the types that it knows;
 * it ignores one that it does not know or, if that extension is required, refuses the plugin. This
 * head never grows, because the fields of each type follow it; struct_size is the whole extension's. */
enum gannet_extension_flag { GANNET_EXTENSION_REQUIRED = 1u << 0 };
typedef struct gannet_extension {
  uint32_t struct_size;
  uint32_t type; /* gannet_extension_type; ABI 2.0 defines none */
  uint32_t flags;
  uint32_t reserved;
  const struct gannet_extension* next;
} gannet_extension;

enum gannet_extension_type { GANNET_EXTENSION_COMMUNICATOR = 1 /* since 2.4: gannet_communicator_extension */ };

/* Since 2.4. Of a Comm that can train on a communicator which the program made with the vendor's library: how ranks find
 * each other before there is a world. `handle` points to the vendor's handle (MPI: an MPI_Fint, of MPI_Comm_c2f); the same
 * pointer is then the `external` of group_create, for the groups of all ranks of the world. The first of them duplicates the
 * communicator; later groups, also of some ranks, whose `external` is null, are made within the duplicate. */
typedef struct gannet_communicator_extension {
  gannet_extension head;
  /* This process's rank in the communicator, and its size. */
  int32_t (*describe)(const void* handle, uint32_t* rank, uint32_t* size, gannet_error* error);
  /* Gives rank 0's bytes to all ranks, which call it with the same number of bytes. Fails after timeout_ms. */
  int32_t (*broadcast)(const void* handle, void* data, uint64_t bytes, uint64_t timeout_ms, gannet_error* error);
} gannet_communicator_extension;

typedef struct gannet_descriptor {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor; /* GANNET_TARGET_MINOR */
  uint64_t magic;
  uint32_t kind;           /* gannet_kind */
  uint32_t tier;           /* gannet_tier */
  const char* name;        /* the config's "type", compared case-insensitively */
  const char* device;      /* "cpu", "cuda" ...: the accelerator that it works with; "": any */
  const char* version;     /* the plugin's own: "1.2.0" */
  const char* fingerprint; /* "" for the stable tier */
  const char* doc;         /* one line */
  const gannet_param_spec* params;
  uint64_t param_count;
  uint64_t param_stride;
  const void* api; /* gannet_optimizer_api ..., depending on kind */
  uint32_t flags;  /* ABI 2.0 defines none */
  uint32_t reserved;
  const gannet_extension* extensions; /* the first of a linked list, or null */
} gannet_descriptor;

#define GANNET_EXPORT_SYMBOL gannet_plugins_v2
#define GANNET_EXPORT_NAME "gannet_plugins_v2"
#define GANNET_NOTE_SECTION ".note.gannet"
#define GANNET_NOTE_NAME "Gannet"
#define GANNET_NOTE_TYPE 1

/* A string in the note: its offset from the beginning of the note's content, and its length, both
 * in bytes. The struct never grows, because it is part of another one. */
typedef struct gannet_note_text {
  uint32_t offset;
  uint32_t bytes;
} gannet_note_text;

/* The head of the note's content, which the host reads from the file before it opens the plugin. The strings follow the head. */
typedef struct gannet_note {
  uint32_t struct_size; /* of this head */
  uint16_t abi_major;
  uint16_t abi_minor; /* GANNET_TARGET_MINOR */
  uint64_t magic;
  uint32_t tier;
  uint32_t interface_versions; /* the GANNET_INTERFACE_VERSIONS it was built with */
  /* The 24 bytes above have the same layout in every ABI. */
  uint64_t required_features; /* bits of GANNET_KNOWN_FEATURES */
  /* For the pinned tier. fingerprint: LibTorch, string ABI and compiler,
   * "torch=2.11.0,cxx11abi=1,compiler=...", which must be the host's. vendor: the vendor part of LibTorch
   * that the plugin uses, "cuda=13.0", or "" if none; it must be that of the LibTorch in the process. */
  gannet_note_text fingerprint;
  gannet_note_text vendor;
  gannet_note_text provides; /* "optimizer/adam@cpu optimizer/adamw@cpu": kind/name@device, lower case, separated by spaces */
} gannet_note;

/* Writes the note, in C99 and in C++. Use it once per shared object, at file scope, with string literals:
 *
 *     GANNET_PLUGIN_NOTE(GANNET_TIER_STABLE, 0, "", "", "optimizer/lion@cpu");
 */
#define GANNET_PLUGIN_NOTE(tier_, required_features_, fingerprint_, vendor_, provides_)                      \
  __attribute__((section(GANNET_NOTE_SECTION), used, aligned(8))) static const struct {                      \
    uint32_t name_bytes, content_bytes, type; /* the head of an ELF note */                                  \
    char name[8];                                                                                            \
    uint32_t padding_to_8;                                                                                   \
    gannet_note head;                                                                                        \
    char fingerprint[sizeof(fingerprint_)];                                                                  \
    char vendor[sizeof(vendor_)];                                                                            \
    char provides[sizeof(provides_)];                                                                        \
  } gannet_note_ = {8,                                                                                       \
                    sizeof(gannet_note) + sizeof(fingerprint_) + sizeof(vendor_) + sizeof(provides_),        \
                    GANNET_NOTE_TYPE,                                                                        \
                    GANNET_NOTE_NAME,                                                                        \
                    0,                                                                                       \
                    {sizeof(gannet_note),                                                                    \
                     GANNET_ABI_MAJOR,                                                                       \
                     GANNET_TARGET_MINOR,                                                                    \
                     GANNET_MAGIC,                                                                           \
                     tier_,                                                                                  \
                     GANNET_INTERFACE_VERSIONS,                                                              \
                     required_features_,                                                                     \
                     {sizeof(gannet_note), sizeof(fingerprint_) - 1},                                        \
                     {sizeof(gannet_note) + sizeof(fingerprint_), sizeof(vendor_) - 1},                      \
                     {sizeof(gannet_note) + sizeof(fingerprint_) + sizeof(vendor_), sizeof(provides_) - 1}}, \
                    fingerprint_,                                                                            \
                    vendor_,                                                                                 \
                    provides_}

/* ---- Sizes of 2.0 ------------------------------------------------------------------------------------------------------*/

/* The minimum sizes that a host accepts for the structs that a plugin makes. Later fields are read
 * only if GANNET_HAS() is true. */
enum gannet_size_2_0 {
  GANNET_NOTE_SIZE_2_0 = 56,
  GANNET_DESCRIPTOR_SIZE_2_0 = 112,
  GANNET_EXTENSION_SIZE_2_0 = 24,
  GANNET_PARAM_SPEC_SIZE_2_0 = 72,
  GANNET_STATE_SPEC_SIZE_2_0 = 40,
  GANNET_OPTIMIZER_API_SIZE_2_0 = 88,
  GANNET_SUM_SPEC_SIZE_2_0 = 16,
  GANNET_SCHEDULER_API_SIZE_2_0 = 48,
  /* The tables' sizes in interface versions 2, 4 and 2. */
  GANNET_ACCELERATOR_API_SIZE_2_0 = 184,
  GANNET_COMM_API_SIZE_2_0 = 144,
  GANNET_OFFLOAD_API_SIZE_2_0 = 80
};

#ifdef __cplusplus
}
#endif

#endif /* GANNET_ABI_H */
