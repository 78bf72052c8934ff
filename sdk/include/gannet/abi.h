/* Gannet's plugin contract: the binary line between the host and a plugin. C99, no dependency.
 *
 * A plugin is a shared object that exports one symbol, and that symbol is data:
 *
 *     const gannet_descriptor* const gannet_plugins_v1[];        null-ended
 *
 * Each descriptor names one plugin (kind, name, device), its parameters, and a table of C functions. What the host must
 * know before it runs any code of the file (magic, ABI, tier, fingerprint, what it provides) stands in an ELF note,
 * `.note.gannet`, which GANNET_PLUGIN_NOTE writes. Plugins in C++ use gannet/sdk.hpp, which does all of this.
 *
 * Rules of the line
 *  - Every struct begins with struct_size; every array of structs comes with its stride (bytes from one to the next).
 *    A new field is appended, and read only where struct_size says that it is there. A moved field is a new ABI major.
 *  - A function returns a gannet_status; on failure it has written a sentence into the caller's gannet_error.
 *  - No exception, no allocation and no C++ type crosses. Strings are UTF-8, null-ended, owned by who made them.
 *  - Pointers in a descriptor live as long as the process: the host never unloads a plugin.
 *  - Optimizer and Scheduler are frozen at ABI 1. Accelerator, Comm and Offload each have an interface version of their own
 *    (GANNET_ACCELERATOR_VERSION ...), and a plugin must have exactly the host's until each kind has two real plugins.
 */
#ifndef GANNET_ABI_H
#define GANNET_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANNET_MAGIC UINT64_C(0x314e4c50544e4e47) /* "GNNTPLN1" in memory */
#define GANNET_ABI_MAJOR 1
#define GANNET_ABI_MINOR 0
/* The versions of the kinds that are not frozen yet, and all three in one number, a byte each, as the note has them. */
#define GANNET_ACCELERATOR_VERSION 2
#define GANNET_COMM_VERSION 3
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
  GANNET_PARAM_FLOAT_LIST = 5 /* a JSON list of numbers; a single number is a list of one unless length says otherwise */
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

/* One parameter that the config's "params" may hold for this plugin. The host parses, converts and checks. */
typedef struct gannet_param_spec {
  uint32_t struct_size;
  uint32_t type;   /* gannet_param_type */
  uint32_t flags;  /* gannet_param_flag */
  uint32_t length; /* FLOAT_LIST: exact number of elements, 0 for any */
  const char* name;
  const char* doc;          /* one line */
  const char* default_json; /* the default as JSON text ("[0.9, 0.999]"), or null: no default, not set unless given */
  const char* choices;      /* STRING: the legal values, separated by '|'; null for any */
  double min;
  double max;
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
  const double* list; /* FLOAT_LIST */
  uint64_t list_count;
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

  void* (*allocate)(void* context, uint64_t bytes, uint64_t alignment); /* null when there is no memory */
  void (*deallocate)(void* context, void* pointer);

  /* Collectives over the data-parallel ranks, blocking, legal inside an optimizer's update only, and in the same order on
   * every rank. all_to_all sends the i-th of world_size equal parts of `send` to rank i; all_gather concatenates by rank. */
  uint32_t (*rank)(void* context);
  uint32_t (*world_size)(void* context);
  int32_t (*all_reduce)(void* context, void* buffer, uint64_t count, uint32_t dtype, uint32_t reduce_op, gannet_error* error);
  int32_t (*all_gather)(void* context, const void* send, void* receive, uint64_t count, uint32_t dtype, gannet_error* error);
  int32_t (*all_to_all)(void* context, const void* send, void* receive, uint64_t count_per_rank, uint32_t dtype,
                        gannet_error* error);
} gannet_host;

/* ---- Optimizer (frozen) ----------------------------------------------------------------------------------------------*/

enum gannet_optimizer_capability {
  /* The new value of an element depends on that element's parameter, gradient and states alone: any range will do. */
  GANNET_OPTIMIZER_ELEMENTWISE = 1u << 0,
  /* Needs sums over each whole tensor (LAMB's norms): serves partials() and apply() instead of update(). */
  GANNET_OPTIMIZER_NEEDS_TENSOR_SUMS = 1u << 1,
  /* Each tensor must be whole in one range (Muon). */
  GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR = 1u << 2,
  /* Averages gradients over ranks itself, with the host's collectives (the 1-bit family). */
  GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION = 1u << 3
};

enum gannet_state_extent {
  GANNET_STATE_PER_ELEMENT = 1,
  GANNET_STATE_PER_TENSOR = 2,
  GANNET_STATE_SCALAR = 3 /* one per parameter group */
};

/* A state that the plugin wants kept per element, per tensor or per group. The host owns the memory: it allocates, shards,
 * offloads and checkpoints it, and hands over raw pointers. */
typedef struct gannet_state_spec {
  uint32_t struct_size;
  uint32_t dtype;  /* gannet_dtype; GANNET_DTYPE_NONE: as the master parameter */
  uint32_t extent; /* gannet_state_extent */
  uint32_t reserved;
  const char* name; /* as it is called in checkpoints: "exp_avg" */
  double initial_value;
} gannet_state_spec;

typedef struct gannet_state_specs {
  uint32_t struct_size;
  uint32_t reserved;
  const gannet_state_spec* specs;
  uint64_t count;
  uint64_t stride;
} gannet_state_specs;

/* Where a tensor, or a part of one, lies in a range. */
typedef struct gannet_segment {
  uint32_t struct_size;
  uint32_t dimensions;
  uint64_t tensor_id;     /* index of the parameter in its group */
  uint64_t offset;        /* elements from the start of the range */
  uint64_t numel;         /* elements of the tensor that lie in the range */
  uint64_t tensor_offset; /* elements of the tensor that lie before the range */
  uint64_t tensor_numel;
  const int64_t* shape; /* [dimensions] of the whole tensor */
} gannet_segment;

/* One range of one parameter group. All buffers have numel elements, are contiguous and, on the CPU, aligned to 64 bytes. */
typedef struct gannet_update_args {
  uint32_t struct_size;
  uint32_t param_dtype; /* of `param`, the master */
  uint32_t grad_dtype;
  uint32_t out_dtype; /* GANNET_DTYPE_NONE: `out` is null */
  uint64_t numel;
  void* param;         /* updated in place */
  const void* grad;    /* never written */
  void* out;           /* receives the new parameter, rounded to out_dtype */
  void* const* states; /* [state_count], in the order of state_specs */
  uint64_t state_count;
  double grad_scale;   /* the gradient is grad * grad_scale: average, unscaling and clipping in one factor */
  uint64_t step;       /* 1 at the first update */
  const double* hyper; /* [hyper_count] the dynamic parameters, see GANNET_PARAM_DYNAMIC */
  uint64_t hyper_count;
  const gannet_segment* segments;
  uint64_t segment_count;
  uint64_t segment_stride;
  void* stream; /* the device's native stream that the buffers were produced on: queue the update there; null on the CPU */
} gannet_update_args;

typedef struct gannet_optimizer_api {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t capabilities;    /* gannet_optimizer_capability */
  uint64_t sums_per_tensor; /* NEEDS_TENSOR_SUMS: how many */

  int32_t (*create)(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error);
  void (*destroy)(void* self);
  /* The answer lives as long as self. */
  int32_t (*state_specs)(void* self, gannet_state_specs* specs, gannet_error* error);
  /* GANNET_OK when update() takes this combination; GANNET_UNSUPPORTED with a sentence otherwise. */
  int32_t (*supports)(void* self, uint32_t param_dtype, uint32_t grad_dtype, uint32_t out_dtype, gannet_error* error);
  int32_t (*update)(void* self, const gannet_update_args* args, gannet_error* error);
  /* NEEDS_TENSOR_SUMS, else null. partials adds this range's share to sums [segment_count][sums_per_tensor]; the host sums
   * over ranges and ranks, and apply receives the totals in the same layout. */
  int32_t (*partials)(void* self, const gannet_update_args* args, double* sums, gannet_error* error);
  int32_t (*apply)(void* self, const gannet_update_args* args, const double* sums, gannet_error* error);
} gannet_optimizer_api;

/* ---- Scheduler (frozen) ----------------------------------------------------------------------------------------------*/

enum gannet_schedule_field { GANNET_SCHEDULE_LR = 1u << 0, GANNET_SCHEDULE_BETA1 = 1u << 1, GANNET_SCHEDULE_BETA2 = 1u << 2 };

typedef struct gannet_schedule_query {
  uint32_t struct_size;
  uint32_t group; /* index of the parameter group */
  uint32_t group_count;
  uint32_t reserved;
  uint64_t step;  /* number of updates applied before: 0 asks for what the first update uses */
  double base_lr; /* the group's own lr, as the optimizer's params gave it */
} gannet_schedule_query;

typedef struct gannet_schedule_value {
  uint32_t struct_size;
  uint32_t fields; /* gannet_schedule_field: which of the following it sets */
  double lr;
  double beta1;
  double beta2;
} gannet_schedule_value;

typedef struct gannet_scheduler_api {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t (*create)(const gannet_host* host, const gannet_params* params, uint32_t group_count, void** self, gannet_error* error);
  void (*destroy)(void* self);
  /* A pure function of the query. */
  int32_t (*value)(void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error);
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

/* No tensor and no allocator crosses: the plugin joins the vendor's half of LibTorch to the process (open), and tells which
 * DeviceType it is; the host then uses LibTorch's own dispatch for memory and for compute, on LibTorch's streams. Beside them
 * run the plugin's own queues, for copies that overlap compute. */
typedef struct gannet_accelerator_api {
  uint32_t struct_size;
  uint32_t version; /* GANNET_ACCELERATOR_VERSION */
  /* Opens the vendor's half of LibTorch. Called once, before anything has asked LibTorch for a device.
   * GANNET_UNAVAILABLE with the reason where there is no driver or no device. */
  int32_t (*create)(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error);
  void (*destroy)(void* self);
  uint64_t (*capabilities)(void* self);
  uint32_t (*device_count)(void* self);
  int32_t (*device_info)(void* self, uint32_t device, gannet_device_info* info, gannet_error* error);
  int32_t (*set_device)(void* self, uint32_t device, gannet_error* error);
  int32_t (*synchronize)(void* self, uint32_t device, gannet_error* error);
  /* The native handle of a c10::Stream given by its id, as c10::Stream::id() tells it: 0 is the default stream, whose handle may
   * itself be null (CUDA's is). Null on a device without streams. */
  void* (*native_stream)(void* self, uint32_t device, int64_t stream_id);
  /* The Comm plugin that "auto" means on this accelerator, for several processes. */
  const char* (*default_comm)(void* self);
  /* The device whose optimizer and comm plugins work on this accelerator's memory; null: the accelerator's own name. */
  const char* (*plugin_device)(void* self);

  /* Queues: GANNET_ACCELERATOR_QUEUES, and all of the following, or none of it and all null.
   *
   * A queue does what it is given in that order, while the caller continues. Nothing orders two queues, or a queue and a compute
   * stream, but events. One thread at a time uses a queue; different queues and any event may be used from any thread. Work that
   * fails later is reported by every event recorded behind it; the queue skips the rest, and so does a queue that waits for such an
   * event. */
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
} gannet_accelerator_api;

/* ---- Comm (version 3) ------------------------------------------------------------------------------------------------*/

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
  /* A group of these ranks, in this order. Called by every member. The world is made with all ranks. `external`: a handle of
   * the vendor's own communicator to take instead of making one, or null. */
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
   * stream the host waits (a device whose default stream has a null handle has another name for it: CUDA's is
   * cudaStreamLegacy), until the time-out of the rendezvous. The buffers still belong to the collective. */
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

typedef struct gannet_descriptor {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor;
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
} gannet_descriptor;

#define GANNET_EXPORT_SYMBOL gannet_plugins_v1
#define GANNET_NOTE_SECTION ".note.gannet"
#define GANNET_NOTE_NAME "Gannet"
#define GANNET_NOTE_TYPE 1

/* The note's content, read by the host from the file before it opens it. */
typedef struct gannet_note {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  uint64_t magic;
  uint32_t tier;
  /* GANNET_INTERFACE_VERSIONS it was built with. A number below 256 is the version of all three (files from before they were
   * apart). */
  uint32_t interface_versions;
  char fingerprint[232]; /* zero-padded */
  char provides[256];    /* "optimizer/adam@cpu optimizer/adamw@cpu": kind/name@device, lower case, separated by spaces */
} gannet_note;

/* An ELF note as it lies in the file. */
typedef struct gannet_elf_note {
  uint32_t name_bytes;
  uint32_t content_bytes;
  uint32_t type;
  char name[8]; /* "Gannet" */
  uint32_t padding_to_8;
  gannet_note content;
} gannet_elf_note;

#ifdef __cplusplus
}
#endif

#endif /* GANNET_ABI_H */
