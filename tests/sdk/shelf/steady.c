/* The shelf's rule in C99, against gannet/abi.h alone; steady.cpp says what it computes. */
#include <gannet/abi.h>
#include <math.h>
#include <stdio.h>

typedef struct steady {
  const gannet_host* host;
  double limit, decay;
} steady;

static int32_t fail(gannet_error* error, int32_t status, const char* sentence) {
  if (error && error->message && error->capacity > 0) snprintf(error->message, error->capacity, "%s", sentence);
  return status;
}

static const void* element(const void* first, uint64_t stride, uint64_t i) { return (const char*)first + i * stride; }

/* ---- What the config may say ------------------------------------------------------------------------------------------*/

static const uint32_t rate_role[] = {GANNET_ROLE_LEARNING_RATE}, momentum_role[] = {GANNET_ROLE_MOMENTUM};

#define SPEC(flags_, name_, default_, min_, max_, roles_, doc_) \
  {.struct_size = sizeof(gannet_param_spec),                    \
   .type = GANNET_PARAM_FLOAT,                                  \
   .flags = (flags_),                                           \
   .name = (name_),                                             \
   .doc = (doc_),                                               \
   .default_json = (default_),                                  \
   .min = (min_),                                               \
   .max = (max_),                                               \
   .roles = (roles_)}
enum { BELOW = GANNET_PARAM_HAS_MIN | GANNET_PARAM_HAS_MAX | GANNET_PARAM_MAX_EXCLUSIVE };

static const gannet_param_spec specs[] = {
    SPEC(GANNET_PARAM_DYNAMIC | GANNET_PARAM_HAS_MIN, "lr", "1e-2", 0, 0, rate_role, "learning rate"),
    SPEC(GANNET_PARAM_DYNAMIC | BELOW, "momentum", "0.9", 0, 1, momentum_role, "share of the last direction"),
    SPEC(GANNET_PARAM_HAS_MIN, "limit", "2", 1, 0, NULL, "largest norm of the gradient, as a multiple of its running mean"),
    SPEC(BELOW, "decay", "0.75", 0, 1, NULL, "share of the last mean in the running mean"),
};

static double number(const gannet_params* params, uint64_t i) {
  return ((const gannet_param_value*)element(params->values, params->stride, i))->number;
}

/* ---- An object --------------------------------------------------------------------------------------------------------*/

static int32_t create(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) {
  const double limit = number(params, 2), decay = number(params, 3);
  steady* made;
  if (limit == 1 && decay == 0)
    return fail(
        error, GANNET_INVALID_ARGUMENT,
        "with 'limit' 1 and 'decay' 0 no gradient could ever grow: give 'decay' a number above 0, or 'limit' one above 1");
  made = host->allocate(host->context, sizeof(steady), 16);
  if (!made) return fail(error, GANNET_OUT_OF_MEMORY, "there is no memory for its object");
  made->host = host;
  made->limit = limit;
  made->decay = decay;
  *self = made;
  return GANNET_OK;
}

static void destroy(void* self) {
  const gannet_host* host = ((steady*)self)->host;
  host->deallocate(host->context, self);
}

static const gannet_state_spec states[] = {
    {.struct_size = sizeof(gannet_state_spec),
     .dtype = GANNET_FLOAT32,
     .extent = GANNET_STATE_PER_ELEMENT,
     .name = "momentum_buffer"},
    {.struct_size = sizeof(gannet_state_spec), .dtype = GANNET_FLOAT64, .extent = GANNET_STATE_SCALAR, .name = "mean_norm"},
};
static const gannet_sum_spec wanted[] = {
    {.struct_size = sizeof(gannet_sum_spec), .scope = GANNET_SUM_OF_GROUP, .reduce_op = GANNET_SUM},
};

static int32_t describe(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                        gannet_error* error) {
  (void)self, (void)context, (void)error;
  description->capabilities = GANNET_OPTIMIZER_ELEMENTWISE;
  description->states = states;
  description->state_count = 2;
  description->state_stride = sizeof(gannet_state_spec);
  description->sums = wanted;
  description->sum_count = 1;
  description->sum_stride = sizeof(gannet_sum_spec);
  return GANNET_OK;
}

static int32_t supports(void* self, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) {
  (void)self;
  if (param == GANNET_FLOAT32 && grad == GANNET_FLOAT32 && out == GANNET_DTYPE_NONE) return GANNET_OK;
  return fail(error, GANNET_UNSUPPORTED, "it does not take these types");
}

/* ---- A step -----------------------------------------------------------------------------------------------------------*/

static int32_t sums(void* self, const gannet_update_args* args, uint32_t round, double* sums_, gannet_error* error) {
  const float* grad = args->grad;
  uint64_t k, i;
  (void)self, (void)round, (void)error;
  for (k = 0; k < args->segment_count; ++k) {
    const gannet_segment* part = element(args->segments, args->segment_stride, k);
    for (i = part->offset; i < part->offset + part->numel; ++i) {
      const double scaled = grad[i] * args->grad_scale;
      sums_[k * args->sum_count] += scaled * scaled;
    }
  }
  return GANNET_OK;
}

typedef struct loop {
  float *param, *velocity;
  const float* grad;
  float lr, momentum, factor;
} loop;

static int32_t move(void* argument, uint64_t begin, uint64_t end) {
  const loop* of = argument;
  uint64_t i;
  for (i = begin; i < end; ++i) {
    of->velocity[i] = of->momentum * of->velocity[i] + of->factor * of->grad[i];
    of->param[i] -= of->lr * of->velocity[i];
  }
  return GANNET_OK;
}

static int32_t update(void* self, const gannet_update_args* args, gannet_error* error) {
  const steady* own = self;
  double norm, usual;
  loop of;
  int32_t status;
  if (args->segment_count == 0) return GANNET_OK;
  norm = sqrt(args->sums[0]);
  usual = own->limit * *(const double*)args->states[1];
  of.factor = (float)(args->grad_scale * (usual > 0 && norm > usual ? usual / norm : 1));
  of.lr = (float)args->hyper[0];
  of.momentum = (float)args->hyper[1];
  of.param = args->param;
  of.grad = args->grad;
  of.velocity = args->states[0];
  status = own->host->parallel_for(own->host->context, 0, args->numel, 4096, move, &of);
  return status == GANNET_OK ? GANNET_OK : fail(error, status, "the host's parallel loop could not be run");
}

static int32_t end_step(void* self, const gannet_step_args* args, gannet_error* error) {
  const steady* own = self;
  double norm, *mean;
  (void)error;
  if (args->tensor_count == 0) return GANNET_OK;
  norm = sqrt(args->sums[0]);
  mean = args->states[1];
  *mean = *mean > 0 ? own->decay * *mean + (1 - own->decay) * norm : norm;
  return GANNET_OK;
}

/* ---- The table --------------------------------------------------------------------------------------------------------*/

static const gannet_optimizer_api api = {
    .struct_size = sizeof(gannet_optimizer_api),
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .supports = supports,
    .update = update,
    .sums = sums,
    .end_step = end_step,
};
static const gannet_descriptor descriptor = {
    .struct_size = sizeof(gannet_descriptor),
    .abi_major = GANNET_ABI_MAJOR,
    .abi_minor = GANNET_TARGET_MINOR,
    .magic = GANNET_MAGIC,
    .kind = GANNET_KIND_OPTIMIZER,
    .tier = GANNET_TIER_STABLE,
    .name = "Steady",
    .device = "cpu",
    .version = "1.0.0",
    .fingerprint = "",
    .doc = "momentum with a limited gradient",
    .params = specs,
    .param_count = sizeof(specs) / sizeof(specs[0]),
    .param_stride = sizeof(gannet_param_spec),
    .api = &api,
};

GANNET_PLUGIN_NOTE(GANNET_TIER_STABLE, 0, "", "", "optimizer/steady@cpu");
const gannet_descriptor* const GANNET_EXPORT_SYMBOL[] = {&descriptor, NULL};
