/* The shelf's schedule in C99: the rate of the group grows from nothing over `steps` updates, then stays. */
#include <gannet/abi.h>

typedef struct ramp {
  const gannet_host* host;
  double steps;
} ramp;

static const gannet_param_spec specs[] = {{
    .struct_size = sizeof(gannet_param_spec),
    .type = GANNET_PARAM_INT,
    .flags = GANNET_PARAM_HAS_MIN,
    .name = "steps",
    .doc = "updates until the rate is the group's own",
    .default_json = "10",
    .min = 1,
}};

static int32_t create(const gannet_host* host, const gannet_params* params, uint32_t group_count, void** self,
                      gannet_error* error) {
  ramp* made = host->allocate(host->context, sizeof(ramp), 16);
  (void)group_count, (void)error;
  if (!made) return GANNET_OUT_OF_MEMORY;
  made->host = host;
  made->steps = params->values[0].number;
  *self = made;
  return GANNET_OK;
}

static void destroy(void* self) {
  const gannet_host* host = ((ramp*)self)->host;
  host->deallocate(host->context, self);
}

static int32_t describe(void* self, gannet_schedule_description* description, gannet_error* error) {
  (void)self, (void)error;
  description->roles = UINT64_C(1) << GANNET_ROLE_LEARNING_RATE;
  return GANNET_OK;
}

static int32_t value(void* self, const gannet_schedule_query* query, gannet_schedule_value* answer, gannet_error* error) {
  const double part = (double)(query->step + 1) / ((ramp*)self)->steps, base = query->base[GANNET_ROLE_LEARNING_RATE];
  (void)error;
  if (base != base) return GANNET_OK; /* the group has no rate: nothing is set */
  answer->values[GANNET_ROLE_LEARNING_RATE] = part < 1 ? part * base : base;
  answer->roles = UINT64_C(1) << GANNET_ROLE_LEARNING_RATE;
  return GANNET_OK;
}

static const gannet_scheduler_api api = {
    .struct_size = sizeof(gannet_scheduler_api),
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .value = value,
};
static const gannet_descriptor descriptor = {
    .struct_size = sizeof(gannet_descriptor),
    .abi_major = GANNET_ABI_MAJOR,
    .abi_minor = GANNET_TARGET_MINOR,
    .magic = GANNET_MAGIC,
    .kind = GANNET_KIND_SCHEDULER,
    .tier = GANNET_TIER_STABLE,
    .name = "Ramp",
    .device = "",
    .version = "1.0.0",
    .fingerprint = "",
    .doc = "a linear warm-up to the group's own rate",
    .params = specs,
    .param_count = 1,
    .param_stride = sizeof(gannet_param_spec),
    .api = &api,
};

GANNET_PLUGIN_NOTE(GANNET_TIER_STABLE, 0, "", "", "scheduler/ramp");
const gannet_descriptor* const GANNET_EXPORT_SYMBOL[] = {&descriptor, NULL};
