/* What 2.4 added, in C99: a rate from the loss over the square of the gradient's norm (Polyak), which falls to nothing over the
 * run's planned length; factors of each matrix's rows and columns, whose product is a part of the step; and a metric. */
#include <gannet/abi.h>
#include <stdio.h>

enum { WIDTH = 2 };

static const uint32_t rate_role[] = {GANNET_ROLE_LEARNING_RATE};
static const gannet_param_spec specs[] = {{.struct_size = sizeof(gannet_param_spec),
                                           .type = GANNET_PARAM_FLOAT,
                                           .flags = GANNET_PARAM_DYNAMIC | GANNET_PARAM_HAS_MIN,
                                           .name = "lr",
                                           .doc = "the largest rate of a step",
                                           .default_json = "0.125",
                                           .roles = rate_role}};

static int32_t create(const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) {
  (void)params, (void)error;
  *self = (void*)host; /* it keeps nothing */
  return GANNET_OK;
}

static void destroy(void* self) { (void)self; }

enum { ROWS, COLUMNS };
static const gannet_state_spec states[] = {
    {.struct_size = sizeof(gannet_state_spec),
     .extent = GANNET_STATE_ROW_FACTOR,
     .name = "rows",
     .initial_value = 0.25,
     .limit = WIDTH},
    {.struct_size = sizeof(gannet_state_spec),
     .extent = GANNET_STATE_COLUMN_FACTOR,
     .name = "columns",
     .initial_value = -0.5,
     .limit = WIDTH},
};
static const gannet_sum_spec sum_specs[] = {
    {.struct_size = sizeof(gannet_sum_spec), .scope = GANNET_SUM_OF_GROUP, .reduce_op = GANNET_SUM}};

static int32_t describe(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                        gannet_error* error) {
  (void)self, (void)context, (void)error;
  description->capabilities = GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR | GANNET_OPTIMIZER_USES_LOSS;
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

static const gannet_segment* segment(const gannet_update_args* args, uint64_t s) {
  return (const gannet_segment*)((const char*)args->segments + s * args->segment_stride);
}

static int32_t sums(void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error) {
  uint64_t s, i;
  (void)self, (void)round, (void)error;
  for (s = 0; s < args->segment_count; ++s)
    for (i = segment(args, s)->offset; i < segment(args, s)->offset + segment(args, s)->numel; ++i) {
      const double grad = ((const float*)args->grad)[i] * args->grad_scale;
      sums[s * args->sum_count] += grad * grad;
    }
  return GANNET_OK;
}

/* The rate of a step: the loss is NaN where nobody knows it, and a run may go beyond its planned length, which may be unknown. */
static double rate_of(double lr, double squares, double loss, uint64_t step, uint64_t total_steps) {
  double rate = lr;
  if (loss == loss && loss / (squares + 1) < lr) rate = loss > 0 ? loss / (squares + 1) : 0;
  if (total_steps == 0) return rate;
  return step > total_steps ? 0 : rate * (double)(total_steps - step + 1) / (double)total_steps;
}

/* One matrix: [rows][columns] gradients and parameters, [rows][width] and [columns][width] factors. Each factor's column k is
 * the running mean of the gradient over every width-th column or row, from number k on. */
static void move(float* param, const float* grad, double scale, double rate, float* of_rows, float* of_columns, uint64_t rows,
                 uint64_t columns, uint64_t width) {
  uint64_t r, c, k;
  for (r = 0; r < rows; ++r)
    for (k = 0; k < width; ++k) {
      double sum = 0;
      for (c = k; c < columns; c += width) sum += grad[r * columns + c] * scale;
      of_rows[r * width + k] = (float)(0.5 * of_rows[r * width + k] + sum / (double)columns);
    }
  for (c = 0; c < columns; ++c)
    for (k = 0; k < width; ++k) {
      double sum = 0;
      for (r = k; r < rows; r += width) sum += grad[r * columns + c] * scale;
      of_columns[c * width + k] = (float)(0.5 * of_columns[c * width + k] + sum / (double)rows);
    }
  for (r = 0; r < rows; ++r)
    for (c = 0; c < columns; ++c) {
      double step = grad[r * columns + c] * scale;
      for (k = 0; k < width; ++k) step += (double)of_rows[r * width + k] * of_columns[c * width + k];
      param[r * columns + c] -= (float)(rate * step);
    }
}

static int32_t update(void* self, const gannet_update_args* args, gannet_error* error) {
  const double scale = args->grad_scale;
  uint64_t s, i, m;
  (void)self;
  if (!GANNET_HAS(args, gannet_update_args, total_steps)) { /* no host that knows USES_LOSS makes such calls */
    if (error && error->capacity > 0) snprintf(error->message, error->capacity, "the call has no loss");
    return GANNET_INTERNAL;
  }
  for (s = 0; s < args->segment_count; ++s) {
    const gannet_segment* part = segment(args, s);
    const uint64_t rows = part->matrix_rows, columns = part->columns, least = rows < columns ? rows : columns;
    const uint64_t width = least < WIDTH ? least : WIDTH;
    const double rate = rate_of(args->hyper[0], args->sums[s * args->sum_count], args->loss, args->step, args->total_steps);
    const float* grad = (const float*)args->grad + part->offset;
    float* param = (float*)args->param + part->offset;
    float *of_rows = args->squares[s * args->state_count + ROWS], *of_columns = args->squares[s * args->state_count + COLUMNS];
    if (!of_rows || !of_columns) { /* a vector */
      for (i = 0; i < part->numel; ++i) param[i] -= (float)(rate * (grad[i] * scale));
      continue;
    }
    for (m = 0; m < part->numel / (rows * columns); ++m)
      move(param + m * rows * columns, grad + m * rows * columns, scale, rate, of_rows + m * rows * width,
           of_columns + m * columns * width, rows, columns, width);
  }
  return GANNET_OK;
}

static int32_t end_step(void* self, const gannet_step_args* args, gannet_error* error) {
  const gannet_host* host = self;
  if (!GANNET_HAS(args, gannet_step_args, total_steps) || !GANNET_HAS(host, gannet_host, metric)) return GANNET_OK;
  if (args->tensor_count == 0) return GANNET_OK; /* it has no sums */
  return host->metric(host->context, "rate", rate_of(args->hyper[0], args->sums[0], args->loss, args->step, args->total_steps),
                      error);
}

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
    .name = "Polyak",
    .device = "cpu",
    .version = "1.0.0",
    .fingerprint = "",
    .doc = "a rate from the loss, with factors and a metric",
    .params = specs,
    .param_count = 1,
    .param_stride = sizeof(gannet_param_spec),
    .api = &api,
};

GANNET_PLUGIN_NOTE(GANNET_TIER_STABLE, 0, "", "", "optimizer/polyak@cpu");
const gannet_descriptor* const GANNET_EXPORT_SYMBOL[] = {&descriptor, NULL};
