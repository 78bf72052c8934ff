/* Gannet's plugin contract: the binary line between the host and a plugin. C99, no dependency.
 *
 * A plugin is a shared object that exports one symbol, and that symbol is data:
 *
 *     const gannet_descriptor* const gannet_plugins_v2[];        null-ended
 *
 * Each descriptor names one plugin (kind, name, device), its parameters, and a table of C functions. What the host must
 * know before it runs any code of the file (magic, ABI, tier, fingerprint, what it provides) stands in an ELF note,
 * `.note.gannet`, which GANNET_PLUGIN_NOTE writes. Plugins in C++ use gannet/sdk.hpp, which does all of this.
 *
 * Rules of the line
 *  - Every struct begins with struct_size; every array of structs comes with its stride (bytes from one to the next). A new
 *    field is appended, and read only where struct_size says that it is there: GANNET_HAS(). A moved field is a new ABI major.
 *  - A field that is newer than 2.0 stands in `#if GANNET_TARGET_MINOR >= n`, which says since when it exists. The author
 *    defines GANNET_TARGET_MINOR before the first include, the oldest minor whose fields the plugin uses: a host of that minor,
 *    and any later one, opens it. A host that is older opens it, too, where it knows every bit of the note's required_features.
 *  - A host accepts structs from the sizes of 2.0 on (GANNET_..._SIZE_2_0). It refuses bits of flags and capabilities that it
 * does not know, and reserved fields that are not zero: they have a meaning in a later minor.
 *  - A function returns a gannet_status; on failure it has written a sentence into the caller's gannet_error.
 *  - No exception, no allocation and no C++ type crosses. Strings are UTF-8, null-ended, owned by who made them.
 *  - Pointers in a descriptor live as long as the process: the host never unloads a plugin.
 *  - Optimizer, Scheduler, the host's table and the envelope (params, descriptor, extensions, note) are frozen: no field of 2.0,
 *    2.1 or 2.2 moves or changes its meaning within ABI 2. Fields and codes marked "provisional" are not part of that promise
 * yet: no device has run them. All of 2.3 is: it freezes when a device has run it. Accelerator, Comm and Offload each have an
 * interface version of their own (GANNET_ACCELERATOR_VERSION ...), and a plugin must have exactly the host's.
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
#define GANNET_ABI_MINOR 3
#ifndef GANNET_TARGET_MINOR
#define GANNET_TARGET_MINOR GANNET_ABI_MINOR
#endif
#if GANNET_TARGET_MINOR > GANNET_ABI_MINOR
#error "GANNET_TARGET_MINOR is newer than this header: install the SDK of that minor"
#endif

/* Whether the struct that a pointer points to is long enough to have a field of its type. */
#define GANNET_HAS(pointer, type, field) ((pointer)->struct_size >= offsetof(type, field) + sizeof((pointer)->field))

/* What a plugin cannot do without in a host, a bit each, in gannet_note::required_features: a host that lacks it does not open
 * the file. ABI 2.0 has none. An optimizer needs no feature where its capabilities say what it uses, which an older host refuses.
 */
#define GANNET_FEATURE_2_1 UINT64_C(1) /* the fields of 2.1, such as gannet_schedule_query::total_steps */
#define GANNET_KNOWN_FEATURES GANNET_FEATURE_2_1

/* The versions of the kinds that are not frozen yet, and all three in one number, a byte each, as the note has them. */
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
  GANNET_TIER_STABLE = 1, /* links nothing of LibTorch: works with any compiler and any LibTorch */
  GANNET_TIER_PINNED = 2  /* may link LibTorch: its fingerprint must equal the host's, field by field */
};

enum gannet_status {
  GANNET_OK = 0,
  GANNET_INVALID_ARGUMENT = 1,
  GANNET_UNSUPPORTED = 2, /* a legal request that this plugin does not serve */
  GANNET_OUT_OF_MEMORY = 3,
  GANNET_IO_ERROR = 4,
  GANNET_TIMEOUT = 5,
  GANNET_PEER_LOST = 6,   /* another rank died or closed its connection */
  GANNET_UNAVAILABLE = 7, /* the hardware or driver is not here */
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
  GANNET_AVERAGE = 4,          /* the sum divided by the number of ranks; floating-point types alone */
  GANNET_PREMULTIPLIED_SUM = 5 /* the sum of factor * element; floating-point types alone */
};

enum gannet_log_level { GANNET_LOG_DEBUG = 1, GANNET_LOG_INFO = 2, GANNET_LOG_WARNING = 3, GANNET_LOG_ERROR = 4 };

/* Where a callee puts the sentence that explains a failure. The caller owns the buffer; a longer text is cut. */
typedef struct gannet_error {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t capacity; /* bytes of message, the final zero included */
  char* message;
} gannet_error;

/* ---- Parameters ----------------------------------------------------------------------------------------------------*/

enum gannet_param_type {
  GANNET_PARAM_BOOL = 1,
  GANNET_PARAM_INT = 2,
  GANNET_PARAM_FLOAT = 3,
  GANNET_PARAM_STRING = 4,
  /* A JSON list; a single value is a list of one unless length says otherwise. */
  GANNET_PARAM_FLOAT_LIST = 5,
  GANNET_PARAM_INT_LIST = 6,
  GANNET_PARAM_STRING_LIST = 7
};

enum gannet_param_flag {
  GANNET_PARAM_REQUIRED = 1u << 0,
  GANNET_PARAM_NULLABLE = 1u << 1, /* JSON null is legal and means: not set */
  GANNET_PARAM_HAS_MIN = 1u << 2,
  GANNET_PARAM_HAS_MAX = 1u << 3,
  GANNET_PARAM_MIN_EXCLUSIVE = 1u << 4,
  GANNET_PARAM_MAX_EXCLUSIVE = 1u << 5,
  /* FLOAT and FLOAT_LIST with a fixed length: a hyperparameter that may change between steps. The host keeps its current
   * value per parameter group, a schedule or the user changes it, and each update receives all of them as doubles, in the
   * order of declaration, lists flattened. */
  GANNET_PARAM_DYNAMIC = 1u << 6,
  GANNET_PARAM_DEPRECATED = 1u << 7
};

/* What a dynamic parameter is, whatever its name: schedules set values by role. */
enum gannet_param_role {
  GANNET_ROLE_NONE = 0,
  GANNET_ROLE_LEARNING_RATE = 1,
  GANNET_ROLE_BETA1 = 2, /* decay of the first moment */
  GANNET_ROLE_BETA2 = 3, /* and of the second */
  GANNET_ROLE_MOMENTUM = 4,
  GANNET_ROLE_WEIGHT_DECAY = 5
};
#define GANNET_ROLE_COUNT 6

/* One parameter that the config's "params" may hold for this plugin. The host parses, converts and checks. */
typedef struct gannet_param_spec {
  uint32_t struct_size;
  uint32_t type;   /* gannet_param_type */
  uint32_t flags;  /* gannet_param_flag */
  uint32_t length; /* lists: exact number of elements, 0 for any */
  const char* name;
  const char* doc;          /* one line */
  const char* default_json; /* the default as JSON text ("[0.9, 0.999]"), or null: no default, not set unless given */
  const char* choices;      /* STRING, STRING_LIST: the legal values, separated by '|'; null for any */
  double min;
  double max;
  const uint32_t* roles; /* DYNAMIC: the gannet_param_role of the number, or of each in the list; null: none has one */
} gannet_param_spec;

/* A parsed and checked value. Every declared parameter arrives, in the order of declaration. */
typedef struct gannet_param_value {
  uint32_t struct_size;
  uint32_t type;     /* gannet_param_type */
  uint32_t is_set;   /* 0: no value and no default, or null */
  uint32_t is_given; /* 1: stood in the config; 0: the default */
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

/* Part of a loop: works on [begin, end). Returns a gannet_status and throws nothing. */
typedef int32_t (*gannet_loop_body)(void* argument, uint64_t begin, uint64_t end);

enum gannet_host_group { GANNET_GROUP_DATA = 0 /* the ranks that share the work on the same parameters */ };

enum gannet_host_operation {
  GANNET_HOST_ALL_REDUCE = 1,     /* recv[count] = reduce_op over ranks of send[count]; send may equal recv */
  GANNET_HOST_BROADCAST = 2,      /* recv[count] of every rank = recv of `root` */
  GANNET_HOST_ALL_GATHER = 3,     /* recv[size * count] = send[count] of each rank in order */
  GANNET_HOST_REDUCE_SCATTER = 4, /* recv[count] = this rank's part of reduce_op over send[size * count] */
  GANNET_HOST_ALL_TO_ALL = 5      /* recv[size * count]: the i-th part comes from rank i, to whom the i-th part of send[] goes */
};

/* Collectives for plugins that are not a Comm, whatever Comm serves them. Memory of the device that the plugin was made for. */
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
  void* stream;   /* that the buffers were produced on; null on the CPU */
} gannet_host_collective;

typedef struct gannet_host {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  void* context; /* first argument of every function below */

  void (*log)(void* context, int32_t level, const char* message);

  /* Splits [begin, end) into chunks that are multiples of grain (but for the last one) and runs body on the host's threads;
   * returns the first status that is not GANNET_OK. Call it from the thread that the host called you on. */
  int32_t (*parallel_for)(void* context, uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument);
  uint32_t (*thread_count)(void* context);

  /* Host memory, whatever device the plugin is for; null when there is none. Memory of the device is what an optimizer describes:
   * its states, and its workspace. The host takes both from LibTorch's allocator, so that they count as the engine's. */
  void* (*allocate)(void* context, uint64_t bytes, uint64_t alignment);
  void (*deallocate)(void* context, void* pointer);

  /* Of a group: where the caller's process stands in it, and how many it has. */
  uint32_t (*rank)(void* context, uint32_t group);
  uint32_t (*world_size)(void* context, uint32_t group);
  /* Returns when this rank's part is done: recv is complete for work that the stream is given from now on, for the host where the
   * stream is null. Legal in an optimizer's begin_step and end_step, which every rank of the group calls, in the same order on
   * all of them, and in an update that averages gradients itself; GANNET_INVALID_ARGUMENT elsewhere. */
  int32_t (*collective)(void* context, const gannet_host_collective* args, gannet_error* error);
} gannet_host;

/* ---- Optimizer -------------------------------------------------------------------------------------------------------*/

/* One object serves one parameter group. In each step that changes the model the host calls, on every rank:
 *
 *     begin_step                once
 *     sums                      for each round, for every piece of the rank's share of the group, in any number of pieces
 *     update                    for every piece of it
 *     end_step                  once
 *
 * How the group is cut into pieces depends on the number of ranks, the ZeRO stage and the tier that its arrays lie on; what a
 * plugin computes must not, but for the order of sums. So states that every rank has whole (PER_TENSOR, SCALAR, PER_ROW,
 * PER_COLUMN) are written in begin_step and end_step alone, where each rank writes the same; update reads them.
 *
 * Rows and columns. A tensor is seen as a stack of matrices: its last dimension is a matrix's columns, the one before it a
 * matrix's rows, all others count matrices. A vector is one row, a scalar one element. Row r of a tensor has the elements
 * [r * columns, (r + 1) * columns); element e is in its row e / columns, and in its column
 * e / (matrix_rows * columns) * columns + e % columns. The rows of a group's tensors are numbered through, in the order of the
 * tensors, and so are the columns: gannet_tensor::first_row and first_column. */

enum gannet_optimizer_capability {
  /* The new value of an element depends on that element's parameter, gradient and states, on sums and on states that are no
   * element's: any range will do. Without it every tensor is whole in one range, as with NEEDS_WHOLE_TENSOR. */
  GANNET_OPTIMIZER_ELEMENTWISE = 1u << 0,
  /* Each tensor must be whole in one range (Muon). Not with ELEMENTWISE. */
  GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR = 1u << 1,
  /* In the steps that gannet_optimizer_api::reduces_gradients names, update() gets each rank's own gradient and averages over the
   * ranks itself, with the host's collectives, which are open in it, or not yet: see gannet_gradient_reduction (the 1-bit
   * family). Every rank has the whole parameters and states then: ZeRO stage 0. With several ranks all get the same pieces in the
   * same order, each tensor whole in one, and numel of a piece is a multiple of 32 * world_size: each rank's equal part is whole
   * bytes of bits, and aligned. What lies between the segments is padding, which is zero and belongs to nobody. args->step is the
   * group's. A step whose gradient is not finite on one rank is skipped on all; gradients are clipped by the root of the mean
   * over ranks of the squares of their norms. With one rank nothing is to be averaged, and pieces are any. */
  GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION = 1u << 2
#if GANNET_TARGET_MINOR >= 1
  ,
  /* It draws random numbers from gannet_update_args::seed, which is 0 without this bit. */
  GANNET_OPTIMIZER_USES_SEED = 1u << 3,
  /* It asks for a workspace: gannet_optimizer_description::workspace_bytes and workspace_bytes_per_element. */
  GANNET_OPTIMIZER_USES_WORKSPACE = 1u << 4
#endif
#if GANNET_TARGET_MINOR >= 2
  ,
  /* A step may take its gradient at other parameters than those that it updates (SAM): gannet_optimizer_api::perturb writes them,
   * and the host puts the parameters back before update(). Not with OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_PERTURBS = 1u << 5,
  /* Some steps take a second gradient, of another loss (Sophia): gannet_optimizer_api::wants_second_gradient names them, and
   * gannet_update_args::second_grad has it. Not with OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_SECOND_GRADIENT = 1u << 6
#endif
#if GANNET_TARGET_MINOR >= 3
  ,
  /* Provisional: freezes when a device has run it. It takes several pieces in one call, such as one launch for many tensors:
   * gannet_optimizer_api::update_many and sums_many, in place of update() and sums() wherever pieces lie in memory at the same
   * time. Not with OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_TAKES_LISTS = 1u << 7,
  /* Provisional: freezes when a device has run it. It reads the step's numbers where the piece's arrays are, so that a recorded
   * launch may be replayed with others: gannet_update_args::device_numbers. Not with OWNS_GRAD_REDUCTION. */
  GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS = 1u << 8
#endif
};

#if GANNET_TARGET_MINOR >= 3
/* Provisional: freezes when a device has run it. Places in gannet_update_args::device_numbers. */
enum gannet_device_number {
  GANNET_NUMBER_SKIP = 0,       /* 1: update() changes nothing; else 0 */
  GANNET_NUMBER_GRAD_SCALE = 1, /* gannet_update_args::grad_scale */
  GANNET_NUMBER_STEP = 2,       /* gannet_update_args::step */
  GANNET_NUMBER_HYPER = 3       /* the first of gannet_update_args::hyper; the others follow */
};
#endif

#if GANNET_TARGET_MINOR >= 2
/* What a piece is handed over for, and a sum wanted for: gannet_update_args::pass, gannet_sum_spec::pass. */
enum gannet_pass {
  GANNET_PASS_UPDATE = 0, /* sums() and update() of a step */
  GANNET_PASS_PERTURB = 1 /* sums() and perturb() before it */
};
#endif

/* Who averages a step's gradients over the ranks: gannet_optimizer_api::reduces_gradients. */
enum gannet_gradient_reduction {
  GANNET_REDUCED_BY_HOST = 0,   /* they arrive averaged */
  GANNET_REDUCED_BY_UPDATE = 1, /* update() averages what it sends; after it all ranks have the same parameters */
  /* A local step: nobody does, and no collective is open. Each rank updates its own parameters, which differ from then on, until
   * a step REDUCED_BY_UPDATE makes them equal again; until then no step is REDUCED_BY_HOST. States LOCAL differ with them. A
   * checkpoint has each rank's own; weights for use are those of evaluate(), which must be there, the same on all ranks. */
  GANNET_REDUCED_LATER = 2
};

enum gannet_state_extent {
  GANNET_STATE_PER_ELEMENT = 1,
  GANNET_STATE_PER_TENSOR = 2, /* one per tensor of the group, at gannet_tensor::index */
  GANNET_STATE_SCALAR = 3,     /* one per parameter group */
  GANNET_STATE_PER_ROW = 4,    /* one per row of the group's tensors, at gannet_tensor::first_row + its row */
  GANNET_STATE_PER_COLUMN = 5, /* likewise per column */
  GANNET_STATE_PER_BLOCK = 6   /* one per gannet_state_spec::block elements of a tensor: scales of 8-bit states. The last block of
                                * a tensor may have fewer elements. */
#if GANNET_TARGET_MINOR >= 1
  /* A square for each matrix of a tensor (statistics of Shampoo and SOAP): ROW_SQUARE [matrices][matrix_rows][matrix_rows],
   * COLUMN_SQUARE [matrices][columns][columns]. Takes NEEDS_WHOLE_TENSOR, and lies where the tensor is updated: update() of the
   * rank that has the tensor writes it, sums() and evaluate() read it (gannet_update_args::squares). initial_value stands on the
   * diagonals. A tensor of fewer than two dimensions, or whose squares would have more than gannet_state_spec::limit rows, has
   * none. */
  ,
  GANNET_STATE_ROW_SQUARE = 7,
  GANNET_STATE_COLUMN_SQUARE = 8
#endif
};

enum gannet_state_flag {
  /* PER_ELEMENT: before the first update of a tensor it is the master parameter's value. */
  GANNET_STATE_FROM_PARAMETER = 1u << 0,
  /* With OWNS_GRAD_REDUCTION, PER_ELEMENT. OF_RANK: every rank has values of its own (the error of its compression); resumed on
   * another number of ranks, each gets their mean. SERVED: a rank has those elements that it averages for all, the rank-th of
   * world_size equal parts of each piece, [numel / world_size]. */
  GANNET_STATE_OF_RANK = 1u << 1,
  GANNET_STATE_SERVED = 1u << 2,
  /* LOCAL: every rank has values of its own while the parameters differ after local steps (GANNET_REDUCED_LATER), and the same
   * ones otherwise. Resumed on another number of ranks, each gets the mean of both. */
  GANNET_STATE_LOCAL = 1u << 3
};

/* A state that the plugin wants kept. The host owns the memory: it allocates, shards, offloads and checkpoints it, and hands over
 * raw pointers. States that every rank has whole lie in host memory, those PER_ELEMENT and PER_BLOCK where the update runs. */
typedef struct gannet_state_spec {
  uint32_t struct_size;
  uint32_t dtype;   /* gannet_dtype; GANNET_DTYPE_NONE: PER_ELEMENT as the master parameter, otherwise fp32 */
  uint32_t extent;  /* gannet_state_extent */
  uint32_t flags;   /* gannet_state_flag */
  const char* name; /* as it is called in checkpoints: "exp_avg" */
  double initial_value;
  uint64_t block; /* PER_BLOCK: elements, a power of two that divides the description's range_alignment; else 0 */
#if GANNET_TARGET_MINOR >= 1
  uint64_t limit; /* since 2.1. ROW_SQUARE, COLUMN_SQUARE: rows that a square has at most, from 1 to 16384; else 0 */
#endif
} gannet_state_spec;

enum gannet_sum_scope {
  GANNET_SUM_OF_TENSOR = 1, /* of each tensor */
  GANNET_SUM_OF_GROUP = 2,  /* of the parameter group */
  GANNET_SUM_OF_MODEL = 3,  /* of all groups; all of them ask for the same ones */
  /* Of each row or column. They are no numbers of a tensor, but of the group's lines: see gannet_update_args::lines. */
  GANNET_SUM_OF_ROW = 4,
  GANNET_SUM_OF_COLUMN = 5
};

/* A number that the plugin wants to know of whole tensors, of which it sees parts: LAMB's norms. */
typedef struct gannet_sum_spec {
  uint32_t struct_size;
  uint32_t scope;     /* gannet_sum_scope */
  uint32_t reduce_op; /* how parts become the whole: GANNET_SUM, GANNET_MAX, GANNET_MIN */
  uint32_t round;     /* 0 for the first; the sums of a round are known in the next ones */
#if GANNET_TARGET_MINOR >= 2
  /* Since 2.2. gannet_pass. Sums of both passes are in one list, in the order of their rounds; in a pass those of the other one
   * are what sums over no elements are, and a round that has none in the pass is not asked for. */
  uint64_t pass;
#endif
} gannet_sum_spec;

/* A parameter of the group, whole. Pointers live as long as the plugin's object. */
typedef struct gannet_tensor {
  uint32_t struct_size;
  uint32_t dimensions;
  uint64_t index;       /* in its group: 0, 1, ... A parameter that joins later comes behind the others. */
  uint64_t id;          /* unique in the process, the same on every rank */
  const char* name;     /* the model's: "h.0.attn.weight" */
  uint64_t numel;       /* of the whole tensor, on however many ranks its parts are */
  const int64_t* shape; /* [dimensions] */
  uint64_t columns;     /* of each of its matrices: it has numel / columns rows */
  uint64_t matrix_rows; /* and numel / matrix_rows columns */
  uint64_t first_row;   /* in its group */
  uint64_t first_column;
#if GANNET_TARGET_MINOR >= 1
  uint64_t seed; /* since 2.1. By the tensor's name, the same in every run: see gannet_update_args::seed */
#endif
} gannet_tensor;

typedef struct gannet_optimizer_context {
  uint32_t struct_size;
  uint32_t group; /* the parameter group that the object is for */
  uint32_t group_count;
  uint32_t rank; /* in GANNET_GROUP_DATA */
  uint32_t world_size;
  uint32_t device; /* index of the device that the group's arrays are on when they are updated */
  const gannet_tensor* tensors;
  uint64_t tensor_count;
  uint64_t tensor_stride;
} gannet_optimizer_context;

/* What the object needs. Lists live as long as the object. */
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
  /* Ranges begin at multiples of it in their tensor, and end there or with the tensor: for states that are kept by blocks of
   * elements. A power of two of at most 4096; 0 or 1: anywhere. */
  uint64_t range_alignment;
#if GANNET_TARGET_MINOR >= 1
  /* Since 2.1, with USES_WORKSPACE. A piece of n elements comes with workspace_bytes + n * workspace_bytes_per_element bytes,
   * begin_step and end_step with workspace_bytes. At most 2^40 and 4096. */
  uint64_t workspace_bytes;
  uint64_t workspace_bytes_per_element;
#endif
} gannet_optimizer_description;

/* begin_step and end_step. */
typedef struct gannet_step_args {
  uint32_t struct_size;
  uint32_t group;
  uint64_t step;     /* updates of the group, this one counted: 1 at the first */
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
  const double* sums; /* [tensor_count][sum_count] in end_step, null in begin_step. Those of group and model: in every row. */
  uint64_t sum_count;
  void* stream;
  const double* const* lines; /* [sum_count] in end_step, null in begin_step: those of rows and columns, see gannet_update_args */
#if GANNET_TARGET_MINOR >= 1
  uint64_t seed;   /* since 2.1. That of the step's pieces: see gannet_update_args */
  void* workspace; /* since 2.1. [workspace_bytes] host memory, aligned to 64 bytes, contents unspecified; null for none */
  uint64_t workspace_bytes; /* since 2.1 */
#endif
} gannet_step_args;

/* Where a tensor, or a part of one, lies in a range. */
typedef struct gannet_segment {
  uint32_t struct_size;
  uint32_t dimensions;
  uint64_t tensor_index;  /* gannet_tensor::index */
  uint64_t tensor_id;     /* gannet_tensor::id */
  uint64_t offset;        /* elements from the start of the range */
  uint64_t numel;         /* elements of the tensor that lie in the range */
  uint64_t tensor_offset; /* elements of the tensor that lie before the range */
  uint64_t tensor_numel;
  const int64_t* shape; /* [dimensions] of the whole tensor */
  const char* name;
  uint64_t columns, matrix_rows, first_row, first_column; /* gannet_tensor's */
#if GANNET_TARGET_MINOR >= 1
  uint64_t seed; /* since 2.1. gannet_tensor's */
#endif
} gannet_segment;

/* One piece of a parameter group. param, grad, out and PER_ELEMENT states have numel elements, are contiguous and, on the CPU,
 * aligned to 64 bytes. In a piece every tensor begins at a multiple of the description's range_alignment, so that the blocks of a
 * segment are [offset / block, (offset + numel + block - 1) / block) of a PER_BLOCK state. */
typedef struct gannet_update_args {
  uint32_t struct_size;
  uint32_t param_dtype; /* of `param`, the master */
  uint32_t grad_dtype;
  uint32_t out_dtype; /* GANNET_DTYPE_NONE: `out` is null */
  uint64_t numel;
  void* param;         /* updated in place by update(), never written by sums() */
  const void* grad;    /* never written */
  void* out;           /* receives the new parameter, rounded to out_dtype */
  void* const* states; /* [state_count], in the order of the description: PER_ELEMENT [numel], PER_BLOCK [blocks], others as in
                        * gannet_step_args. update() writes those PER_ELEMENT and PER_BLOCK, sums() none. */
  uint64_t state_count;
  double grad_scale; /* the gradient is grad * grad_scale: average, unscaling and clipping in one factor */
  uint64_t step; /* updates of these tensors, this one counted: 1 at the first. One that joined later has fewer than others. */
  const double* hyper; /* [hyper_count] the dynamic parameters, see GANNET_PARAM_DYNAMIC */
  uint64_t hyper_count;
  const gannet_segment* segments;
  uint64_t segment_count;
  uint64_t segment_stride;
  void* stream;       /* the device's native stream that the buffers were produced on: queue the update there; null on the CPU */
  const double* sums; /* [segment_count][sum_count] of the rounds so far, those of group and model in every row; host memory */
  uint64_t sum_count;
  uint32_t group;
  uint32_t device; /* index of the device that the arrays are on */
  /* [sum_count], host memory: of each sum of scope ROW or COLUMN one number for every row or column of the group; null for the
   * others, whose numbers are in `sums`. sums() combines this piece's share into those of its round, in place; those of earlier
   * rounds are whole. Null where the description has no such sum. */
  double* const* lines;
#if GANNET_TARGET_MINOR >= 1
  /* Since 2.1, with USES_SEED, else 0. A number of the run and the step, the same in all pieces, on all ranks, and in a run that
   * resumes. A rule that takes its random numbers for an element from (seed, gannet_segment::seed, place of the element in its
   * tensor), by a function and not from a sequence, has the same results however the group is cut. */
  uint64_t seed;
  /* Since 2.1, with USES_WORKSPACE, else null. [workspace_bytes] for this call, where the piece's arrays are, aligned to 64
   * bytes; other calls use the same memory, so its contents are unspecified. On a device: provisional. */
  void* workspace;
  uint64_t workspace_bytes;
  /* Since 2.1. [segment_count][state_count] where the description has squares, else null: the squares of the segment's tensor,
   * null where the tensor has none, and for states of other extents (whose `states` entry is null for squares). On a device:
   * provisional. */
  void* const* squares;
#endif
#if GANNET_TARGET_MINOR >= 2
  /* Since 2.2, with SECOND_GRADIENT in update() of a step that wants one, else null. [numel] param_dtype, where `param` is; never
   * written. The second loss's gradient: averaged and unscaled, neither multiplied by grad_scale nor clipped. */
  const void* second_grad;
  uint64_t pass; /* since 2.2. gannet_pass */
#endif
#if GANNET_TARGET_MINOR >= 3
  /* Since 2.3, provisional: freezes when a device has run it. With TAKES_DEVICE_NUMBERS in sums(), update() and perturb(), else
   * null and 0. [device_number_count] at the places of gannet_device_number, in the memory where the piece's arrays are: complete
   * for work on the stream; on the CPU, and where a device's group is updated on the host, host memory. Never written, and valid
   * like the arrays. `grad_scale` is NaN then, `step` 0, `hyper` null and `hyper_count` 0: a number that the host reads in the
   * call would stay as it was in a launch that is replayed. begin_step, end_step and evaluate have theirs as before. Today's host
   * decides that a step is skipped before it calls anything: it always passes a skip of 0. */
  const double* device_numbers;
  uint64_t device_number_count;
#endif
} gannet_update_args;

typedef struct gannet_optimizer_api {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t (*create)(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error);
  void (*destroy)(void* self);
  /* Called once before anything else, and again when parameters join the group: then with the same answer. */
  int32_t (*describe)(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                      gannet_error* error);
  /* GANNET_OK when update() takes this combination; GANNET_UNSUPPORTED with a sentence otherwise. */
  int32_t (*supports)(void* self, uint32_t param_dtype, uint32_t grad_dtype, uint32_t out_dtype, gannet_error* error);
  int32_t (*update)(void* self, const gannet_update_args* args, gannet_error* error);
  /* Where the description has sums, else null: combines this piece's share of the round's sums into `sums`
   * [segment_count][sum_count] by each one's reduce_op; the host combines pieces and ranks. */
  int32_t (*sums)(void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error);
  /* Null where there is nothing to do. */
  int32_t (*begin_step)(void* self, const gannet_step_args* args, gannet_error* error);
  int32_t (*end_step)(void* self, const gannet_step_args* args, gannet_error* error);
  /* Null where the weights that are trained are those to use. Else writes the weights to evaluate with into `out`, in the
   * master's type (Schedule-Free, averages of weights): a function of the piece's param, states and hyperparameters, which it
   * leaves as they are. grad, sums and states SERVED are null, step is the number of updates so far. Of an optimizer that claims
   * OWNS_GRAD_REDUCTION they are asked for after local steps alone, and are the same on all ranks. */
  int32_t (*evaluate)(void* self, const gannet_update_args* args, gannet_error* error);
  /* Where OWNS_GRAD_REDUCTION is claimed, else null: who averages the gradients of this step (gannet_step_args::step), a
   * gannet_gradient_reduction. A pure function of the params and the step. */
  int32_t (*reduces_gradients)(void* self, uint64_t step, uint32_t* reduces, gannet_error* error);
#if GANNET_TARGET_MINOR >= 2
  /* Since 2.2. Where PERTURBS is claimed, else null: writes the parameters at which the step's gradient is to be taken into
   * `out`, in the master's type: a function of the piece's param, gradient, states, hyperparameters and the sums of
   * GANNET_PASS_PERTURB, which it leaves as they are. `step` and `grad_scale` are those that update() would get, but for
   * clipping; neither begin_step nor end_step surrounds it. The host keeps the parameters, and has put them back, bit for bit,
   * when update() is called. A step that nobody perturbs is an update alone. */
  int32_t (*perturb)(void* self, const gannet_update_args* args, gannet_error* error);
  /* Since 2.2. Where SECOND_GRADIENT is claimed, else null: 1 where update() of this step (gannet_step_args::step) takes a second
   * gradient, else 0. A pure function of the params and the step. */
  int32_t (*wants_second_gradient)(void* self, uint64_t step, uint32_t* wants, gannet_error* error);
#endif
#if GANNET_TARGET_MINOR >= 3
  /* Since 2.3, provisional: freezes when a device has run it. Where TAKES_LISTS is claimed, else not called: update() of `count`
   * pieces of one group in one step, `stride` bytes from one to the next. The results are those of one update() for each, in any
   * order: no piece may depend on which others are in its list, nor on its place in it. Pieces share states that are no
   * element's, hyperparameters, device numbers and lines; each has its own part of the workspace. The host calls update() itself
   * for pieces that do not lie in memory together (a tier without addresses, a device's group that is updated on the host). */
  int32_t (*update_many)(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, gannet_error* error);
  /* Since 2.3, provisional: freezes when a device has run it. Where TAKES_LISTS is claimed and the description has sums, else not
   * called: sums() of each piece, into sums[i]. */
  int32_t (*sums_many)(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, uint32_t round,
                       double* const* sums, gannet_error* error);
#endif
} gannet_optimizer_api;

/* ---- Scheduler -------------------------------------------------------------------------------------------------------*/

typedef struct gannet_schedule_query {
  uint32_t struct_size;
  uint32_t group; /* index of the parameter group */
  uint32_t group_count;
  uint32_t base_count; /* GANNET_ROLE_COUNT of the host */
  uint64_t step;       /* number of updates applied before: 0 asks for what the first update uses */
  const double* base;  /* [base_count] by role: the group's own values, as the optimizer's params gave them; NaN: it has none */
  const double* state; /* [state_count] as advance() left it */
  uint64_t state_count;
#if GANNET_TARGET_MINOR >= 1
  uint64_t total_steps; /* since 2.1. Updates that the run is planned to apply; 0: not known */
#endif
} gannet_schedule_query;

/* One step of a schedule that has a state. */
typedef struct gannet_schedule_advance {
  uint32_t struct_size;
  uint32_t group_count;
  uint64_t step; /* that is reached: 1 at the first call */
  double metric; /* what the program measured, with NEEDS_METRIC; else NaN */
  double* state; /* [state_count] zeros at the first call; saved in checkpoints */
  uint64_t state_count;
#if GANNET_TARGET_MINOR >= 1
  uint64_t total_steps; /* since 2.1. As in gannet_schedule_query */
#endif
} gannet_schedule_advance;

typedef struct gannet_schedule_value {
  uint32_t struct_size;
  uint32_t value_count; /* GANNET_ROLE_COUNT of the host */
  uint64_t roles;       /* written: bit r where values[r] is set */
  double* values;       /* [value_count] by role */
} gannet_schedule_value;

enum gannet_schedule_flag {
  /* It follows a number that the program measures (a validation loss): it advances when the program calls
   * scheduler->step(metric), not with the updates. */
  GANNET_SCHEDULE_NEEDS_METRIC = 1u << 0
};

typedef struct gannet_schedule_description {
  uint32_t struct_size;
  uint32_t flags;          /* gannet_schedule_flag */
  uint64_t roles;          /* bits: the optimizer must have these, or the run ends before it begins */
  uint64_t optional_roles; /* set where the optimizer has them; where it has none of them, the user is warned */
  uint64_t state_count;    /* numbers that it keeps from step to step, at most 4096: whatever is no function of the step alone */
} gannet_schedule_description;

typedef struct gannet_scheduler_api {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t (*create)(const gannet_host* host, const gannet_params* params, uint32_t group_count, void** self, gannet_error* error);
  void (*destroy)(void* self);
  int32_t (*describe)(void* self, gannet_schedule_description* description, gannet_error* error);
  /* A pure function of the query. */
  int32_t (*value)(void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error);
  /* Where it has a state, else null: called once for each step, with the same on every rank. A pure function of its argument. */
  int32_t (*advance)(void* self, const gannet_schedule_advance* args, gannet_error* error);
} gannet_scheduler_api;

/* ---- Accelerator (version 2) -----------------------------------------------------------------------------------------*/

typedef struct gannet_device_info {
  uint32_t struct_size;
  int32_t torch_device_type; /* c10::DeviceType as a number: 0 CPU, 1 CUDA */
  uint32_t compute_major;
  uint32_t compute_minor;
  uint64_t memory_bytes;
  uint64_t free_bytes; /* 0: not known (telling would set the device up) */
  char name[128];
} gannet_device_info;

enum gannet_accelerator_capability {
  GANNET_ACCELERATOR_FP16 = 1u << 0,
  GANNET_ACCELERATOR_BF16 = 1u << 1,
  GANNET_ACCELERATOR_PINNED_MEMORY = 1u << 2, /* at::empty with pinned_memory gives memory that the device copies from */
  GANNET_ACCELERATOR_STREAMS = 1u << 3,       /* compute is asynchronous and ordered by streams */
  GANNET_ACCELERATOR_QUEUES = 1u << 4,        /* the queue functions of the table are there */
  /* Device memory is apart from host memory, so that moving a buffer to the host frees memory of the device. */
  GANNET_ACCELERATOR_SEPARATE_MEMORY = 1u << 5
};

/* gannet_accelerator_api::priority of a device that does not say one, of one that computes, and of one that is only named. */
enum gannet_accelerator_priority {
  GANNET_PRIORITY_NEVER = -1, /* or any below 0: "auto" never takes it */
  GANNET_PRIORITY_HOST = 0,   /* the processor itself: there is always one */
  GANNET_PRIORITY_UNSAID = 50,
  GANNET_PRIORITY_DEVICE = 100
};

/* No tensor and no allocator crosses: the plugin joins the vendor's half of LibTorch to the process (open), and tells which
 * DeviceType it is; the host then uses LibTorch's own dispatch for memory and for compute, on LibTorch's streams. Beside them
 * run the plugin's own queues, for copies that overlap compute. */
typedef struct gannet_accelerator_api {
  uint32_t struct_size;
  uint32_t version; /* GANNET_ACCELERATOR_VERSION */
  /* Opens the vendor's half of LibTorch. Called once, before anything has asked LibTorch for a device.
   * With the reason: GANNET_UNAVAILABLE where no driver or device is, GANNET_UNSUPPORTED for a fault that "auto" warns of. */
  int32_t (*create)(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error);
  void (*destroy)(void* self);
  uint64_t (*capabilities)(void* self);
  uint32_t (*device_count)(void* self);
  int32_t (*device_info)(void* self, uint32_t device, gannet_device_info* info, gannet_error* error);
  int32_t (*set_device)(void* self, uint32_t device, gannet_error* error);
  int32_t (*synchronize)(void* self, uint32_t device, gannet_error* error);
  /* The native handle of a c10::Stream given by its id, as c10::Stream::id() tells it; 0 is the default stream. Null on a device
   * without streams (GANNET_ACCELERATOR_STREAMS) and nowhere else: where the runtime's own handle of the default stream is null,
   * as CUDA's is, the plugin gives the runtime's other name for it (cudaStreamLegacy). */
  void* (*native_stream)(void* self, uint32_t device, int64_t stream_id);
  /* The Comm plugin that "auto" means on this accelerator, for several processes. */
  const char* (*default_comm)(void* self);
  /* The device whose optimizer and comm plugins work on this accelerator's memory; null: the accelerator's own name. */
  const char* (*plugin_device)(void* self);

  /* Queues: GANNET_ACCELERATOR_QUEUES, and all of the following, or none of it and all null.
   *
   * A queue does what it is given in that order, while the caller continues. Nothing orders two queues, or a queue and a compute
   * stream, but events. One thread at a time uses a queue; different queues and any event may be used from any thread. Work that
   * fails later is reported by every event recorded behind it; the queue skips the rest, and so does a queue that waits for such
   * an event. */
  int32_t (*queue_create)(void* self, uint32_t device, const char* name, void** queue, gannet_error* error);
  void (*queue_destroy)(void* self, void* queue); /* returns when its work is over */
  /* Between any two of host and device memory. Both buffers stay as they are until the copy is over. Host memory that is not
   * pinned may make the caller wait. */
  int32_t (*queue_copy)(void* self, void* queue, void* to, const void* from, uint64_t bytes, gannet_error* error);
  /* An event that is over when the queue has done all that it was given so far. It may outlive the queue. */
  int32_t (*event_record)(void* self, void* queue, void** event, gannet_error* error);
  void (*event_destroy)(void* self, void* event);
  int32_t (*event_query)(void* self, void* event, int32_t* is_over, gannet_error* error);
  int32_t (*event_wait)(void* self, void* event, gannet_error* error); /* blocks the calling thread */
  /* What the queue is given from now on begins after the event is over. */
  int32_t (*queue_wait_event)(void* self, void* queue, void* event, gannet_error* error);
  /* Likewise after what a compute stream of the queue's device (its native handle) has been given so far, and the other way
   * round. Nothing to do where compute is synchronous. */
  int32_t (*queue_wait_stream)(void* self, void* queue, void* stream, gannet_error* error);
  int32_t (*stream_wait_event)(void* self, void* stream, void* event, gannet_error* error);
  /* Page-locks host memory, so that copies from and to it run beside the host. unpin takes the address that pin was given, once
   * no copy uses the memory. */
  int32_t (*pin)(void* self, void* address, uint64_t bytes, gannet_error* error);
  int32_t (*unpin)(void* self, void* address, gannet_error* error);

  /* "auto" takes the usable accelerator with the highest one, of equal ones the first by name. */
  int32_t priority;
  uint32_t reserved;
} gannet_accelerator_api;

/* ---- Comm (version 4) ------------------------------------------------------------------------------------------------*/

/* All ranks of a group give the same operation, type, reduce operation and counts, a SEND those of its RECV. A plugin need not
 * find out that they do not: what it moves then is undefined.
 *
 * `size` ranks in the group; count, send and recv are those of gannet_collective_args. Where a line names a list of counts, null
 * means `count` for every rank, else a rank's part has as many elements as the list says and the parts lie behind one another. */
enum gannet_collective {
  GANNET_ALL_REDUCE = 1, /* recv[count] = op over ranks of send[count]; send may equal recv */
  GANNET_BROADCAST = 2,  /* recv[count] on every rank = recv of `peer` */
  /* In place too: send (of an all-gather) or recv (of a reduce-scatter) may be this rank's part of the other buffer. */
  GANNET_ALL_GATHER = 3,     /* recv[size * count, or by recv_counts] = send[count] of each rank in order */
  GANNET_REDUCE_SCATTER = 4, /* recv[count] = this rank's part of op over send[size * count, or by send_counts] */
  GANNET_ALL_TO_ALL = 5, /* the i-th part of send goes to rank i, the i-th part of recv comes from it: send_counts, recv_counts */
  GANNET_BARRIER = 6,
  /* Between two ranks. There are no tags: the messages from one rank to another in a group are received in the order in which
   * they were sent, whatever else is in flight. Ranks that send to each other do so in one collective_many: two SENDs that wait
   * for each other's RECV may never end. */
  GANNET_SEND = 7, /* send[count] to `peer` */
  GANNET_RECV = 8  /* recv[count] from `peer` */
};

/* The ranks' key-value store, made by the host. Functions block until the store's time-out. */
typedef struct gannet_store {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*set)(void* context, const char* key, const void* bytes, uint64_t count, gannet_error* error);
  /* Waits for the key. Returns its bytes in a buffer that lives until the next call on this thread. */
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
  const char* host_address;  /* address by which the other ranks reach this host; null: find out */
  /* Since version 4. The device whose memory the Comm moves: current when create is called, and opened before it. Its
   * accelerator's table has the queues and events that order a collective beside the streams; it lives longer than the Comm.
   * Null for a Comm of the host's memory. */
  const struct gannet_accelerator_api* accelerator;
  void* accelerator_self;
  uint32_t device;
  uint32_t reserved;
} gannet_rendezvous;

/* Append-only since version 3: a plugin reads a later field only where struct_size says that it is there. Lists (send_counts,
 * recv_counts) have `size` numbers and are read before the call returns; buffers belong to the collective until it is over. */
typedef struct gannet_collective_args {
  uint32_t struct_size;
  uint32_t op;        /* gannet_collective */
  uint32_t dtype;     /* gannet_dtype */
  uint32_t reduce_op; /* gannet_reduce_op */
  uint32_t peer;      /* rank in the group: the root of a BROADCAST, whom SEND sends to, whom RECV receives from */
  /* In which type sums of 16-bit floating-point elements are added: GANNET_FLOAT32 rounds once, at the end;
   * GANNET_DTYPE_NONE leaves it to the plugin, which may round every partial sum (see sum_dtype). */
  uint32_t sum_dtype;
  const void* send;
  void* recv;
  uint64_t count;              /* elements, see gannet_collective */
  void* stream;                /* the device's native stream that the buffers were produced on; null on the CPU */
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
  /* A group of these ranks, in this order. Called by every member, and the first place where ranks meet: create connects nobody.
   * `external`: a handle of the vendor's own communicator to take instead of making one, or null. */
  int32_t (*group_create)(void* self, const uint32_t* ranks, uint32_t count, const char* name, void* external, void** group,
                          gannet_error* error);
  void (*group_destroy)(void* self, void* group);
  /* Starts a collective, after what args->stream has been given so far. The collectives of a group are called in the same order
   * on all its ranks, by one thread at a time; SEND and RECV in the same order on the two ranks that they join. */
  int32_t (*collective)(void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error);
  /* Starts a batch whose members progress together, in no order among themselves: the safe form for exchanges, and the quick one
   * for many small gathers. One work for all of them. args is an array with `stride` bytes from one to the next. */
  int32_t (*collective_many)(void* self, void* group, const gannet_collective_args* args, uint64_t count, uint64_t stride,
                             void** work, gannet_error* error);
  /* Completion of a work, for the host. wait: GANNET_TIMEOUT after timeout_ms leaves the work pending (wait again or abort).
   * query: whether wait would return at once; does not block. */
  int32_t (*work_wait)(void* self, void* work, uint64_t timeout_ms, gannet_error* error);
  int32_t (*work_query)(void* self, void* work, int32_t* is_over, gannet_error* error);
  /* And for the device: what the stream is given from now on begins after the collective, and the host does not wait. With a null
   * stream, on a device without streams, the host waits, until the time-out of the rendezvous. The buffers still belong to the
   * collective. */
  int32_t (*work_block)(void* self, void* work, void* stream, gannet_error* error);
  void (*work_free)(void* self, void* work);
  /* Ends everything in flight with an error, so that who waits returns; afterwards only work_free, group_destroy and destroy are
   * legal. From any thread, beside any other function. */
  void (*abort)(void* self);
  void (*counters)(void* self, gannet_comm_counters* counters);
  /* GANNET_FLOAT32 when sums of this 16-bit type are rounded once whatever args->sum_dtype says, the type itself when partial
   * sums are rounded, GANNET_DTYPE_NONE when the plugin does not reduce it. */
  uint32_t (*sum_dtype)(void* self, uint32_t dtype);

  /* Memory that the plugin moves faster than any other. All four, or none and all null. allocate is collective: every member of
   * the group asks for the same number of bytes, and the memory may be shared by the ranks of one host. A registered buffer is
   * the caller's own; it stays registered until it is unregistered. */
  int32_t (*allocate)(void* self, void* group, uint64_t bytes, void** memory, gannet_error* error);
  void (*deallocate)(void* self, void* group, void* memory);
  int32_t (*register_buffer)(void* self, void* group, void* buffer, uint64_t bytes, gannet_error* error);
  int32_t (*unregister_buffer)(void* self, void* group, void* buffer, gannet_error* error);
} gannet_comm_api;

/* ---- Offload (version 2) ---------------------------------------------------------------------------------------------*/

/* A tier that buffers live in when they are not in use. Reads and writes are asynchronous and may be in flight together. */
typedef struct gannet_offload_api {
  uint32_t struct_size;
  uint32_t version; /* GANNET_OFFLOAD_VERSION */
  int32_t (*create)(const gannet_host* host, const gannet_params* params, uint32_t rank, void** self, gannet_error* error);
  void (*destroy)(void* self);
  uint64_t (*alignment_bytes)(void* self); /* of buffers, offsets and sizes */
  int32_t (*allocate)(void* self, uint64_t bytes, const char* name, void** region, gannet_error* error);
  void (*release)(void* self, void* region);
  /* The region's bytes where the tier can be addressed directly (host memory), else null. */
  void* (*address)(void* self, void* region);
  int32_t (*read)(void* self, void* region, uint64_t offset, void* buffer, uint64_t bytes, void** work, gannet_error* error);
  int32_t (*write)(void* self, void* region, uint64_t offset, const void* buffer, uint64_t bytes, void** work,
                   gannet_error* error);
  int32_t (*work_wait)(void* self, void* work, gannet_error* error); /* frees the work */
} gannet_offload_api;

/* ---- The exported table and the note -----------------------------------------------------------------------------------*/

/* More about a plugin than its descriptor says. The host reads the types that it knows; one that it does not know is passed over
 * or, where it is required, the plugin is refused. */
enum gannet_extension_flag { GANNET_EXTENSION_REQUIRED = 1u << 0 };
typedef struct gannet_extension {
  uint32_t struct_size;
  uint32_t type; /* ABI 2.0 has none */
  uint32_t flags;
  uint32_t reserved;
  const struct gannet_extension* next;
} gannet_extension;

typedef struct gannet_descriptor {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor; /* GANNET_TARGET_MINOR */
  uint64_t magic;
  uint32_t kind;           /* gannet_kind */
  uint32_t tier;           /* gannet_tier */
  const char* name;        /* the config's "type": matched without regard to case */
  const char* device;      /* "cpu", "cuda" ...: the accelerator it works for; "" for any */
  const char* version;     /* the plugin's own, "1.2.0" */
  const char* fingerprint; /* "" for the stable tier */
  const char* doc;         /* one line */
  const gannet_param_spec* params;
  uint64_t param_count;
  uint64_t param_stride;
  const void* api; /* gannet_optimizer_api ... according to kind */
  uint32_t flags;  /* ABI 2.0 has none */
  uint32_t reserved;
  const gannet_extension* extensions; /* the first of a chain, or null */
} gannet_descriptor;

#define GANNET_EXPORT_SYMBOL gannet_plugins_v2
#define GANNET_EXPORT_NAME "gannet_plugins_v2"
#define GANNET_NOTE_SECTION ".note.gannet"
#define GANNET_NOTE_NAME "Gannet"
#define GANNET_NOTE_TYPE 1

/* A text of the note: where it begins, in bytes from the begin of the note's content, and how long it is. It is part of another
 * struct, so it never grows. */
typedef struct gannet_note_text {
  uint32_t offset;
  uint32_t bytes;
} gannet_note_text;

/* The head of the note's content, read by the host from the file before it opens it. Its texts lie behind it. */
typedef struct gannet_note {
  uint32_t struct_size; /* of this head */
  uint16_t abi_major;
  uint16_t abi_minor; /* GANNET_TARGET_MINOR */
  uint64_t magic;
  uint32_t tier;
  uint32_t interface_versions; /* GANNET_INTERFACE_VERSIONS it was built with */
  /* These 24 bytes are the same in every ABI. */
  uint64_t required_features; /* bits of GANNET_KNOWN_FEATURES */
  /* Of the pinned tier. fingerprint: which LibTorch, string ABI and compiler, "torch=2.11.0,cxx11abi=1,compiler=...": the host's.
   * vendor: of which vendor's half of LibTorch it uses something, "cuda=13.0", or "": must be that of the LibTorch in the
   * process. */
  gannet_note_text fingerprint;
  gannet_note_text vendor;
  gannet_note_text provides; /* "optimizer/adam@cpu optimizer/adamw@cpu": kind/name@device, lower case, separated by spaces */
} gannet_note;

/* Writes the note, in C99 and in C++; once per shared object, at file scope, with string literals:
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

/* The least that a host accepts of what a plugin makes. Fields behind them are read where GANNET_HAS() says that they are there.
 */
enum gannet_size_2_0 {
  GANNET_NOTE_SIZE_2_0 = 56,
  GANNET_DESCRIPTOR_SIZE_2_0 = 112,
  GANNET_EXTENSION_SIZE_2_0 = 24,
  GANNET_PARAM_SPEC_SIZE_2_0 = 72,
  GANNET_STATE_SPEC_SIZE_2_0 = 40,
  GANNET_OPTIMIZER_API_SIZE_2_0 = 88,
  GANNET_SUM_SPEC_SIZE_2_0 = 16,
  GANNET_SCHEDULER_API_SIZE_2_0 = 48,
  /* Of version 2, 3 and 2. */
  GANNET_ACCELERATOR_API_SIZE_2_0 = 184,
  GANNET_COMM_API_SIZE_2_0 = 144,
  GANNET_OFFLOAD_API_SIZE_2_0 = 80
};

#ifdef __cplusplus
}
#endif

#endif /* GANNET_ABI_H */
