// The relay of an optimizer's calls: copies their arguments in the shape that the options request.
#include <vector>

#include "kit/relay_call.h"
#include "kit/relay_tables.h"

namespace gannet::kit {
namespace {

uint32_t group_label(uint32_t group) { return relay_options().relabels ? group + 6 : group; }
uint64_t id_label(uint64_t id) { return relay_options().relabels ? id * 1000003 + 17 : id; }

const gannet_tensor* tensors_in(CallMemory& memory, const gannet_tensor* first, uint64_t count, uint64_t stride) {
  gannet_tensor* const copies = memory.list(first, count, stride, "gannet_tensor");
  for (uint64_t i = 0; copies && i < count; ++i) memory.at(copies, i).id = id_label(memory.at(copies, i).id);
  return copies;
}

void reshape(CallMemory& memory, gannet_update_args& args) {
  args.group = group_label(args.group);
  gannet_segment* const segments = memory.list(args.segments, args.segment_count, args.segment_stride, "gannet_segment");
  for (uint64_t i = 0; segments && i < args.segment_count; ++i) {
    gannet_segment& segment = memory.at(segments, i);
    segment.tensor_id = id_label(segment.tensor_id);
    segment.shape = memory.values(segment.shape, segment.dimensions, "gannet_segment::shape");
    segment.name = memory.text(segment.name, "gannet_segment::name");
  }
  args.segments = segments;
  args.segment_stride = memory.stride_of<gannet_segment>();
  args.hyper = memory.values(args.hyper, args.hyper_count, "the hyperparameters");
  if (args.squares)
    args.squares = memory.values(args.squares, args.segment_count * args.state_count, "gannet_update_args::squares");
  args.states = memory.values(args.states, args.state_count, "gannet_update_args::states");
  args.sums = memory.values(args.sums, args.segment_count * args.sum_count, "the sums that it is given");
  args.lines = memory.values(args.lines, args.sum_count, "gannet_update_args::lines");
  args.device_numbers = memory.values(args.device_numbers, args.device_number_count, "the device numbers");
}

template <auto kMember>
struct PieceRelay;
template <class... Others, int32_t (*gannet_optimizer_api::*kMember)(void*, const gannet_update_args*, Others...)>
struct PieceRelay<kMember> {
  static int32_t call(void* self, const gannet_update_args* args, Others... others) {
    if (!relay_options().reshapes()) return Relay<kMember>::call(self, args, others...);
    CallMemory memory = call_memory();
    gannet_update_args copy = *args;
    reshape(memory, copy);
    const gannet_update_args* const given = memory.copied(&copy, "gannet_update_args");
    memory.protect();
    return Relay<kMember>::call(self, given, others...);
  }
};

template <auto kMember>
struct ListRelay;
template <class... Others,
          int32_t (*gannet_optimizer_api::*kMember)(void*, const gannet_update_args*, uint64_t, uint64_t, Others...)>
struct ListRelay<kMember> {
  static int32_t call(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, Others... others) {
    if (!relay_options().reshapes()) return Relay<kMember>::call(self, args, count, stride, others...);
    CallMemory memory = call_memory();
    std::vector<gannet_update_args> copies;
    for (uint64_t i = 0; i < count; ++i) {
      copies.push_back(*reinterpret_cast<const gannet_update_args*>(reinterpret_cast<const char*>(args) + i * stride));
      reshape(memory, copies.back());
    }
    const gannet_update_args* const given = memory.list(copies.data(), count, sizeof(copies[0]), "gannet_update_args");
    memory.protect();
    return Relay<kMember>::call(self, given, count, memory.stride_of<gannet_update_args>(), others...);
  }
};

template <auto kMember>
int32_t step_relay(void* self, const gannet_step_args* args, gannet_error* error) {
  if (!relay_options().reshapes()) return Relay<kMember>::call(self, args, error);
  CallMemory memory = call_memory();
  gannet_step_args copy = *args;
  copy.group = group_label(copy.group);
  copy.hyper = memory.values(copy.hyper, copy.hyper_count, "the hyperparameters");
  copy.tensors = tensors_in(memory, copy.tensors, copy.tensor_count, copy.tensor_stride);
  copy.tensor_stride = memory.stride_of<gannet_tensor>();
  copy.states = memory.values(copy.states, copy.state_count, "gannet_step_args::states");
  copy.sums = memory.values(copy.sums, copy.tensor_count * copy.sum_count, "the sums that it is given");
  copy.lines = memory.values(copy.lines, copy.sum_count, "gannet_step_args::lines");
  const gannet_step_args* const given = memory.copied(&copy, "gannet_step_args");
  memory.protect();
  return Relay<kMember>::call(self, given, error);
}

int32_t describe_optimizer(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                           gannet_error* error) {
  using Through = Relay<&gannet_optimizer_api::describe>;
  if (!relay_options().reshapes()) return Through::call(self, context, description, error);
  CallMemory memory = call_memory(), writable = call_memory();
  gannet_optimizer_context copy = *context;
  copy.group = group_label(copy.group);
  if (relay_options().relabels) copy.group_count += 9;
  copy.tensors = tensors_in(memory, copy.tensors, copy.tensor_count, copy.tensor_stride);
  copy.tensor_stride = memory.stride_of<gannet_tensor>();
  const gannet_optimizer_context* const given = memory.copied(&copy, "gannet_optimizer_context");
  FilledIn filled(writable, description, "gannet_optimizer_description");
  memory.protect();
  const int32_t status = Through::call(self, given, filled.given(), error);
  filled.give_back();
  return status;
}

}  // namespace

const void* optimizer_table(const plugin::Plugin& plugin) {
  using Api = gannet_optimizer_api;
  static Api table = begun<Api>(plugin);
  table.describe = describe_optimizer;
  GANNET_RELAY(Api, supports);
  GANNET_RELAY(Api, reduces_gradients);
  GANNET_RELAY(Api, wants_second_gradient);
  table.update = PieceRelay<&Api::update>::call;
  if (real<Api>->sums) table.sums = PieceRelay<&Api::sums>::call;
  if (real<Api>->begin_step) table.begin_step = step_relay<&Api::begin_step>;
  if (real<Api>->end_step) table.end_step = step_relay<&Api::end_step>;
  if (real<Api>->evaluate) table.evaluate = PieceRelay<&Api::evaluate>::call;
  if (GANNET_HAS(real<Api>, Api, perturb) && real<Api>->perturb) table.perturb = PieceRelay<&Api::perturb>::call;
  if (GANNET_HAS(real<Api>, Api, update_many) && real<Api>->update_many) table.update_many = ListRelay<&Api::update_many>::call;
  if (GANNET_HAS(real<Api>, Api, sums_many) && real<Api>->sums_many) table.sums_many = ListRelay<&Api::sums_many>::call;
  return &table;
}

}  // namespace gannet::kit
