/* What 2.1 added, in C99: a rate drawn for each element, the rule worked out in the workspace, and a square of each matrix's
 * rows, whose trace slows the tensor down. */
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
    {.struct_size = sizeof(gannet_state_spec),
     .extent = GANNET_STATE_ROW_SQUARE,
     .name = "rows",
     .initial_value = 0.25,
     .limit = 64},
};

static int32_t describe(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                        gannet_error* error) {
  (void)self, (void)context, (void)error;
  description->capabilities = GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR | GANNET_OPTIMIZER_USES_SEED | GANNET_OPTIMIZER_USES_WORKSPACE;
  description->states = states;
  description->state_count = 2;
  description->state_stride = sizeof(gannet_state_spec);
  if (!GANNET_HAS(description, gannet_optimizer_description, workspace_bytes_per_element)) return GANNET_OK; /* it refuses us */
  description->workspace_bytes = sizeof(double);
  description->workspace_bytes_per_element = sizeof(double);
  return GANNET_OK;
}

static int32_t supports(void* self, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) {
  (void)self;
  if (param == GANNET_FLOAT32 && grad == GANNET_FLOAT32 && out == GANNET_DTYPE_NONE) return GANNET_OK;
  if (error && error->capacity > 0) snprintf(error->message, error->capacity, "it does not take these types");
  return GANNET_UNSUPPORTED;
}

static uint64_t mixed(uint64_t bits) { /* SplitMix64 */
  bits += UINT64_C(0x9e3779b97f4a7c15);
  bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
  return bits ^ (bits >> 31);
}

static int32_t update(void* self, const gannet_update_args* args, gannet_error* error) {
  uint64_t s, i, a, b, c, m;
  (void)self, (void)error;
  for (s = 0; s < args->segment_count; ++s) {
    const gannet_segment* part = (const gannet_segment*)((const char*)args->segments + s * args->segment_stride);
    const uint64_t rows = part->matrix_rows, columns = part->columns;
    const float* grad = (const float*)args->grad + part->offset;
    float *param = (float*)args->param + part->offset, *momentum = (float*)args->states[0] + part->offset;
    float* square = args->squares[s * args->state_count + 1];
    double *trace = args->workspace, *rate = trace + 1;
    *trace = 1;
    for (m = 0; square && m < part->numel / (rows * columns); ++m)
      for (a = 0; a < rows; ++a)
        for (b = 0; b < rows; ++b) {
          float* sum = square + (m * rows + a) * rows + b;
          for (c = 0; c < columns; ++c)
            *sum += (float)(grad[(m * rows + a) * columns + c] * args->grad_scale) * grad[(m * rows + b) * columns + c];
          if (a == b) *trace += *sum;
        }
    for (i = 0; i < part->numel; ++i)
      rate[i] =
          args->hyper[0] * (double)(mixed(args->seed ^ mixed(part->seed + part->tensor_offset + i)) >> 11) / 9007199254740992.0;
    for (i = 0; i < part->numel; ++i) {
      momentum[i] = 0.5f * momentum[i] + (float)(grad[i] * args->grad_scale);
      param[i] -= (float)(rate[i] / sqrt(*trace) * momentum[i]);
    }
  }
  return GANNET_OK;
}

static const gannet_optimizer_api api = {
    .struct_size = sizeof(gannet_optimizer_api),
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .supports = supports,
    .update = update,
};
static const gannet_descriptor descriptor = {
    .struct_size = sizeof(gannet_descriptor),
    .abi_major = GANNET_ABI_MAJOR,
    .abi_minor = GANNET_TARGET_MINOR,
    .magic = GANNET_MAGIC,
    .kind = GANNET_KIND_OPTIMIZER,
    .tier = GANNET_TIER_STABLE,
    .name = "Drawn",
    .device = "cpu",
    .version = "1.0.0",
    .fingerprint = "",
    .doc = "momentum at drawn rates",
    .params = specs,
    .param_count = 1,
    .param_stride = sizeof(gannet_param_spec),
    .api = &api,
};

GANNET_PLUGIN_NOTE(GANNET_TIER_STABLE, 0, "", "", "optimizer/drawn@cpu");
const gannet_descriptor* const GANNET_EXPORT_SYMBOL[] = {&descriptor, NULL};
