/* What 2.3 added, in C99: pieces in lists, and numbers that are read where the pieces are. Momentum whose step is shorter by the
 * norm of a tensor's gradient. */
#include <gannet/abi.h>
#include <math.h>
#include <stdio.h>

static const uint32_t rate_role[] = {GANNET_ROLE_LEARNING_RATE};
static const gannet_param_spec specs[] = {{.struct_size = sizeof(gannet_param_spec),
                                           .type = GANNET_PARAM_FLOAT,
                                           .flags = GANNET_PARAM_DYNAMIC | GANNET_PARAM_HAS_MIN,
                                           .name = "lr",
                                           .doc = "learning rate",
                                           .default_json = "0.125",
                                           .roles = rate_role}};

static int32_t create(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) {
  (void)params, (void)error;
  *self = (void*)host; /* it keeps nothing */
  return GANNET_OK;
}

static void destroy(void* self) { (void)self; }

static const gannet_state_spec states[] = {
    {.struct_size = sizeof(gannet_state_spec), .extent = GANNET_STATE_PER_ELEMENT, .name = "momentum_buffer"},
};
static const gannet_sum_spec sum_specs[] = {
    {.struct_size = sizeof(gannet_sum_spec), .scope = GANNET_SUM_OF_TENSOR, .reduce_op = GANNET_SUM}};

static int32_t describe(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                        gannet_error* error) {
  (void)self, (void)context, (void)error;
  description->capabilities = GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_TAKES_LISTS | GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS;
  description->states = states;
  description->state_count = 1;
  description->state_stride = sizeof(gannet_state_spec);
  description->sums = sum_specs;
  description->sum_count = 1;
  description->sum_stride = sizeof(gannet_sum_spec);
  return GANNET_OK;
}

static int32_t supports(void* self, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) {
  (void)self;
  if (param == GANNET_FLOAT32 && grad == GANNET_FLOAT32 && out == GANNET_DTYPE_NONE) return GANNET_OK;
  if (error && error->capacity > 0) snprintf(error->message, error->capacity, "it does not take these types");
  return GANNET_UNSUPPORTED;
}

static const gannet_segment* segment(const gannet_update_args* args, uint64_t s) {
  return (const gannet_segment*)((const char*)args->segments + s * args->segment_stride);
}

static int32_t sums(void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error) {
  const double scale = args->device_numbers[GANNET_NUMBER_GRAD_SCALE];
  uint64_t s, i;
  (void)self, (void)round, (void)error;
  for (s = 0; s < args->segment_count; ++s)
    for (i = segment(args, s)->offset; i < segment(args, s)->offset + segment(args, s)->numel; ++i)
      sums[s] += ((const float*)args->grad)[i] * scale * ((const float*)args->grad)[i] * scale;
  return GANNET_OK;
}

static int32_t update(void* self, const gannet_update_args* args, gannet_error* error) {
  const double* numbers = args->device_numbers;
  float *param = args->param, *momentum = args->states[0];
  const float* grad = args->grad;
  uint64_t s, i;
  (void)self;
  if (args->device_number_count != GANNET_NUMBER_HYPER + 1 || args->hyper || args->step != 0 ||
      args->grad_scale == args->grad_scale) {
    if (error && error->capacity > 0) snprintf(error->message, error->capacity, "the call has numbers of its own");
    return GANNET_INTERNAL;
  }
  if (numbers[GANNET_NUMBER_SKIP] != 0) return GANNET_OK;
  for (s = 0; s < args->segment_count; ++s) {
    const double rate = numbers[GANNET_NUMBER_HYPER] / (1 + sqrt(args->sums[s])) / sqrt(numbers[GANNET_NUMBER_STEP]);
    for (i = segment(args, s)->offset; i < segment(args, s)->offset + segment(args, s)->numel; ++i) {
      momentum[i] = 0.5f * momentum[i] + (float)(grad[i] * numbers[GANNET_NUMBER_GRAD_SCALE]);
      param[i] -= (float)(rate * momentum[i]);
    }
  }
  return GANNET_OK;
}

static const gannet_update_args* piece(const gannet_update_args* args, uint64_t i, uint64_t stride) {
  return (const gannet_update_args*)((const char*)args + i * stride);
}

static int32_t update_many(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, gannet_error* error) {
  int32_t status = GANNET_OK;
  uint64_t i;
  for (i = 0; i < count && status == GANNET_OK; ++i) status = update(self, piece(args, i, stride), error);
  return status;
}

static int32_t sums_many(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, uint32_t round,
                         double* const* all, gannet_error* error) {
  int32_t status = GANNET_OK;
  uint64_t i;
  for (i = 0; i < count && status == GANNET_OK; ++i) status = sums(self, piece(args, i, stride), round, all[i], error);
  return status;
}

static const gannet_optimizer_api api = {
    .struct_size = sizeof(gannet_optimizer_api),
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .supports = supports,
    .update = update,
    .sums = sums,
    .update_many = update_many,
    .sums_many = sums_many,
};
static const gannet_descriptor descriptor = {
    .struct_size = sizeof(gannet_descriptor),
    .abi_major = GANNET_ABI_MAJOR,
    .abi_minor = GANNET_TARGET_MINOR,
    .magic = GANNET_MAGIC,
    .kind = GANNET_KIND_OPTIMIZER,
    .tier = GANNET_TIER_STABLE,
    .name = "Listed",
    .device = "cpu",
    .version = "1.0.0",
    .fingerprint = "",
    .doc = "momentum in lists, with device numbers",
    .params = specs,
    .param_count = 1,
    .param_stride = sizeof(gannet_param_spec),
    .api = &api,
};

GANNET_PLUGIN_NOTE(GANNET_TIER_STABLE, 0, "", "", "optimizer/listed@cpu");
const gannet_descriptor* const GANNET_EXPORT_SYMBOL[] = {&descriptor, NULL};
