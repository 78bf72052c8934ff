// The learning rate that lr_scheduler_type asks for, as a pure function of the update. For runs whose config has no scheduler.
#pragma once

#include <gannet/training_arguments.h>

namespace gannet {

// Of update `step` (from 0) of `total`, as a factor of the optimizer's own learning rate, `base_rate`. Formulas: transformers 5,
// optimization.py.
double lr_factor(const TrainingArguments& arguments, double base_rate, int64_t step, int64_t total);
// warmup_steps resolved: below 1 it is a fraction of `total`, rounded up.
int64_t warmup_updates(const TrainingArguments& arguments, int64_t total);

}  // namespace gannet
