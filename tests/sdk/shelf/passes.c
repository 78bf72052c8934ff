/* What 2.2 added, in C99: parameters that are perturbed by the gradient over its norm, which a sum of that pass gives, and a
 * second gradient in every third step, whose squares slow an element down. */
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
    {.struct_size = sizeof(gannet_state_spec), .extent = GANNET_STATE_PER_ELEMENT, .name = "hessian"},
};
static const gannet_sum_spec sum_specs[] = {
    {.struct_size = sizeof(gannet_sum_spec), .scope = GANNET_SUM_OF_MODEL, .reduce_op = GANNET_SUM, .pass = GANNET_PASS_PERTURB}};

static int32_t describe(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                        gannet_error* error) {
  (void)self, (void)context, (void)error;
  description->capabilities = GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_PERTURBS | GANNET_OPTIMIZER_SECOND_GRADIENT;
  description->states = states;
  description->state_count = 2;
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

static int32_t refused(gannet_error* error, const char* why) {
  if (error && error->capacity > 0) snprintf(error->message, error->capacity, "%s", why);
  return GANNET_INTERNAL;
}

static int32_t sums(void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error) {
  uint64_t s, i;
  (void)self;
  if (args->pass != GANNET_PASS_PERTURB || round != 0) return refused(error, "a sum of perturb() is asked for in another pass");
  for (s = 0; s < args->segment_count; ++s) {
    const gannet_segment* part = (const gannet_segment*)((const char*)args->segments + s * args->segment_stride);
    for (i = part->offset; i < part->offset + part->numel; ++i) {
      const double grad = ((const float*)args->grad)[i] * args->grad_scale;
      sums[s] += grad * grad;
    }
  }
  return GANNET_OK;
}

static int32_t perturb(void* self, const gannet_update_args* args, gannet_error* error) {
  uint64_t i;
  (void)self;
  if (args->pass != GANNET_PASS_PERTURB || args->second_grad)
    return refused(error, "perturb() is given another pass's arguments");
  if (args->segment_count == 0) return GANNET_OK; /* it has no sums, and no tensor */
  for (i = 0; i < args->numel; ++i)
    ((float*)args->out)[i] = ((const float*)args->param)[i] +
                             (float)(0.5 * ((const float*)args->grad)[i] * args->grad_scale / (sqrt(args->sums[0]) + 1e-12));
  return GANNET_OK;
}

static int32_t wants_second_gradient(void* self, uint64_t step, uint32_t* wants, gannet_error* error) {
  (void)self, (void)error;
  *wants = step % 3 == 1;
  return GANNET_OK;
}

static int32_t update(void* self, const gannet_update_args* args, gannet_error* error) {
  uint64_t i;
  float *param = args->param, *momentum = args->states[0], *hessian = args->states[1];
  const float *grad = args->grad, *second = args->second_grad;
  (void)self;
  if (args->pass != GANNET_PASS_UPDATE || (args->segment_count > 0 && args->sums[0] != 0))
    return refused(error, "update() has a sum of perturb()");
  for (i = 0; i < args->numel; ++i) {
    if (second) hessian[i] = 0.5f * hessian[i] + 0.5f * second[i] * second[i];
    momentum[i] = 0.5f * momentum[i] + (float)(grad[i] * args->grad_scale);
    param[i] -= (float)(args->hyper[0] * momentum[i] / (1 + sqrt(hessian[i])));
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
    .sums = sums,
    .perturb = perturb,
    .wants_second_gradient = wants_second_gradient,
};
static const gannet_descriptor descriptor = {
    .struct_size = sizeof(gannet_descriptor),
    .abi_major = GANNET_ABI_MAJOR,
    .abi_minor = GANNET_TARGET_MINOR,
    .magic = GANNET_MAGIC,
    .kind = GANNET_KIND_OPTIMIZER,
    .tier = GANNET_TIER_STABLE,
    .name = "Passes",
    .device = "cpu",
    .version = "1.0.0",
    .fingerprint = "",
    .doc = "momentum in two passes, with a second gradient",
    .params = specs,
    .param_count = 1,
    .param_stride = sizeof(gannet_param_spec),
    .api = &api,
};

GANNET_PLUGIN_NOTE(GANNET_TIER_STABLE, 0, "", "", "optimizer/passes@cpu");
const gannet_descriptor* const GANNET_EXPORT_SYMBOL[] = {&descriptor, NULL};
