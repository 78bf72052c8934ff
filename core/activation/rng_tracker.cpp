#include <ATen/Context.h>
#include <gannet/error.h>
#include <gannet/rng_tracker.h>

#include "activation/configuration.h"
#include "base/format.h"
#include "base/text.h"

namespace gannet::checkpointing {
namespace {

// The default generators of the CPU and of the device that LibTorch computes on by default.
std::vector<at::Generator> default_generators() {
  std::vector<at::Generator> all = {at::globalContext().defaultGenerator(at::Device(at::kCPU))};
  const auto type = at::getAccelerator(/*checked=*/false);
  if (!type) return all;
  const auto& hooks = at::globalContext().getAcceleratorHooksInterface(*type);
  if (!hooks.hasPrimaryContext(hooks.getCurrentDevice())) return all;  // nothing has run on the device
  all.push_back(at::globalContext().defaultGenerator(at::Device(*type, hooks.getCurrentDevice())));
  return all;
}

std::string quoted(const std::string& name) { return formatted("'{}'", printable(name)); }

}  // namespace

void RngTracker::add(const std::string& name, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  if (streams_.contains(name))
    throw Error(ErrorCode::kArgument, formatted("the random stream {} was added already", quoted(name)),
                "give each stream a name of its own, or call reset() before the streams are added again");
  for (const auto& [other, stream] : streams_)
    if (stream.seed == seed)
      throw Error(ErrorCode::kArgument,
                  formatted("the random streams {} and {} have the same seed, {}: they would draw the same numbers",
                            quoted(other), quoted(name), seed),
                  "give each stream a seed of its own");
  streams_[name].seed = seed;
  Stream& stream = streams_[name];
  for (const at::Generator& generator : default_generators()) state_on(stream, generator);
}

// Returns the stream's current state on the generator's device. When the stream is first used on a
// device, it starts from its seed.
at::Tensor RngTracker::state_on(Stream& stream, const at::Generator& generator) const {
  at::Tensor& state = stream.states[generator.device().str()];
  if (!state.defined()) {
    at::Generator own = generator.clone();
    own.set_current_seed(stream.seed.value_or(0));
    state = own.get_state();
  }
  return state;
}

RngTracker::Fork::Fork(RngTracker& tracker, const std::string& name) : tracker_(tracker), name_(name) {
  const std::lock_guard lock(tracker_.mutex_);
  const auto found = tracker_.streams_.find(name);
  if (found == tracker_.streams_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, stream] : tracker_.streams_) names.push_back(quoted(known));
    throw Error(ErrorCode::kArgument,
                formatted("there is no random stream {}; there {}", quoted(name),
                          names.empty() ? "is none" : formatted("are {}", join(names, ", "))),
                "call model_parallel_manual_seed(seed), or rng_tracker().add(name, seed), before the first fork");
  }
  if (found->second.is_forked)
    throw Error(ErrorCode::kOrder,
                formatted("the random stream {} is forked already: a second fork would draw the same numbers", quoted(name)),
                "let the first fork end, or fork a stream of another name");
  for (at::Generator& generator : default_generators()) {
    const at::Tensor state = tracker_.state_on(found->second, generator);
    const std::lock_guard drawing(generator.mutex());
    before_.emplace_back(generator, generator.get_state());
    generator.set_state(state);
  }
  found->second.is_forked = true;
}

RngTracker::Fork::~Fork() {
  const std::lock_guard lock(tracker_.mutex_);
  const auto found = tracker_.streams_.find(name_);
  for (auto& [generator, state] : before_) {
    const std::lock_guard drawing(generator.mutex());
    if (found != tracker_.streams_.end()) found->second.states[generator.device().str()] = generator.get_state();
    generator.set_state(state);
  }
  if (found != tracker_.streams_.end()) found->second.is_forked = false;
}

RngTracker::States RngTracker::get_states() const {
  const std::lock_guard lock(mutex_);
  States all;
  for (const auto& [name, stream] : streams_) all[name] = stream.states;
  return all;
}

void RngTracker::set_states(const States& states) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, of_devices] : states)
    for (const auto& [device, state] : of_devices) streams_[name].states[device] = state;
}

void RngTracker::reset() {
  const std::lock_guard lock(mutex_);
  streams_.clear();
}

RngTracker& rng_tracker() {
  static auto* const forever = new RngTracker;
  return *forever;
}

void model_parallel_manual_seed(uint64_t seed, std::optional<uint32_t> tensor_rank) {
  constexpr uint64_t kApart = 2718;  // the value that DeepSpeed and Megatron use
  at::manual_seed(seed);
  RngTracker& tracker = rng_tracker();
  tracker.reset();
  tracker.add(kModelParallelRng, seed + kApart + tensor_rank.value_or(activation::tensor_rank()));
}

}  // namespace gannet::checkpointing
