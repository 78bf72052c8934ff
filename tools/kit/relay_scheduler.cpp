// The relay of a schedule's calls.
#include <vector>

#include "kit/relay_call.h"
#include "kit/relay_tables.h"

namespace gannet::kit {
namespace {

int32_t describe_schedule(void* self, gannet_schedule_description* description, gannet_error* error) {
  using Through = Relay<&gannet_scheduler_api::describe>;
  if (!relay_options().reshapes()) return Through::call(self, description, error);
  CallMemory writable = call_memory();
  FilledIn filled(writable, description, "gannet_schedule_description");
  const int32_t status = Through::call(self, filled.given(), error);
  filled.give_back();
  return status;
}

int32_t schedule_value(void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) {
  using Through = Relay<&gannet_scheduler_api::value>;
  if (!relay_options().reshapes()) return Through::call(self, query, value, error);
  CallMemory memory = call_memory(), writable = call_memory();
  gannet_schedule_query copy = *query;
  if (relay_options().total_steps) copy.total_steps = *relay_options().total_steps;
  // A later minor version may have more roles.
  std::vector<double> base(copy.base, copy.base + copy.base_count);
  std::vector<double> values(value->values, value->values + value->value_count);
  if (relay_options().appended_bytes > 0) base.push_back(0.125), values.push_back(0.25);
  copy.base = memory.values(base.data(), base.size(), "gannet_schedule_query::base");
  copy.base_count = static_cast<uint32_t>(base.size());
  copy.state = memory.values(copy.state, copy.state_count, "gannet_schedule_query::state");
  const gannet_schedule_query* const given = memory.copied(&copy, "gannet_schedule_query");
  gannet_schedule_value written = *value;
  written.values = writable.values(values.data(), values.size(), "gannet_schedule_value::values");
  written.value_count = static_cast<uint32_t>(values.size());
  FilledIn filled(writable, &written, "gannet_schedule_value");
  memory.protect();
  const int32_t status = Through::call(self, given, filled.given(), error);
  filled.give_back();
  if (written.values && written.value_count == values.size()) {
    std::memcpy(value->values, written.values, value->value_count * sizeof(double));
    if (relay_options().appended_bytes > 0 && written.values[values.size() - 1] != 0.25)
      keep_fault("it wrote the value of a role that it cannot know");
  } else {
    keep_fault("it changed gannet_schedule_value::values or value_count: only the numbers and `roles` are written");
  }
  value->roles = written.roles;
  return status;
}

int32_t advance_schedule(void* self, const gannet_schedule_advance* args, gannet_error* error) {
  using Through = Relay<&gannet_scheduler_api::advance>;
  if (!relay_options().reshapes()) return Through::call(self, args, error);
  CallMemory memory = call_memory(), writable = call_memory();
  gannet_schedule_advance copy = *args;
  if (relay_options().total_steps) copy.total_steps = *relay_options().total_steps;
  copy.state = writable.values(args->state, args->state_count, "gannet_schedule_advance::state");
  const gannet_schedule_advance* const given = memory.copied(&copy, "gannet_schedule_advance");
  memory.protect();
  const int32_t status = Through::call(self, given, error);
  if (args->state_count > 0) std::memcpy(args->state, copy.state, args->state_count * sizeof(double));
  return status;
}

}  // namespace

const void* scheduler_table(const plugin::Plugin& plugin) {
  using Api = gannet_scheduler_api;
  static Api table = begun<Api>(plugin);
  table.describe = describe_schedule;
  table.value = schedule_value;
  if (real<Api>->advance) table.advance = advance_schedule;
  return &table;
}

}  // namespace gannet::kit
