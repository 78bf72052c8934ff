// Draws a batch's micro-batches from the program, and checks that all ranks agree on the batch.
#include <gannet/error.h>
#include <gannet/value.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/outcome.h"
#include "base/text.h"
#include "control/world.h"
#include "pipeline/driver.h"

namespace gannet::pipeline {
namespace {

uint64_t hash_of(const Wire& tensors) {
  std::string bytes;
  for (const at::Tensor& tensor : tensors) {
    bytes += tensor.defined() ? shape_text(tensor.sizes()) : std::string("-");
    if (!tensor.defined() || tensor.numel() == 0 || tensor.layout() != at::kStrided) continue;
    if (!tensor.is_cpu()) continue;  // reading device memory would block the host
    const at::Tensor whole = tensor.detach().contiguous();
    bytes.append(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
  }
  return std::hash<std::string>()(bytes);
}

// A source may refill the same tensors for the next micro-batch, and a layer may change its input
// in place, so tensors that the source still holds are copied. Host tensors move to the device.
void take_over(Wire& tensors, at::Device device) {
  for (at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (tensor.device() != device)
      tensor = tensor.detach().to(device);
    else if (tensor.use_count() > 1 || !tensor.has_storage() || tensor.storage().use_count() > 1)
      tensor = tensor.detach().clone();
  }
}

}  // namespace

// Draws all micro-batches of a batch before the first one runs. If data is missing, or if the ranks
// differ in what check_alike() compares, every rank throws before anything runs. `trains`: the batch
// needs a schedule for `count` micro-batches.
std::vector<pipe::MicroBatch> Driver::draw(const pipe::Source& source, int64_t count, const char* call, bool trains) {
  std::vector<pipe::MicroBatch> drawn;
  const std::string mine = outcome([&] {
    const uint64_t schedule = trains ? schedule_->hash_of(count) : 0;
    std::vector<std::string> rates;
    if (trains)
      for (const double rate : engine_.get_lr()) rates.push_back(Value(rate).to_json());
    const std::string agreed = formatted("{} {} [{}]", count, schedule, join(rates, ","));
    if (!first_chunk().is_first() && !last_chunk().is_last()) return agreed;
    if (!source)
      throw Error(ErrorCode::kArgument, formatted("{}() was given no data", call),
                  "pass it a source, call set_dataiterator(), or give initialize training_data");
    uint64_t hash = 0;
    while (static_cast<int64_t>(drawn.size()) < count) {
      std::optional<pipe::MicroBatch> next = source();
      if (!next)
        throw Error(ErrorCode::kNotFound,
                    formatted("{}() takes {} micro-batches, and the data ended after {}", call, count, drawn.size()),
                    "use a source without end, such as RepeatingLoader, or end the loop before");
      hash = std::rotl(hash, 5) ^ hash_of(next->labels) ^ std::hash<double>()(next->weight);
      if (!first_chunk().is_first()) next->inputs.clear();
      if (!last_chunk().is_last()) next->labels.clear();
      take_over(next->inputs, ranks_.device);
      take_over(next->labels, ranks_.device);
      drawn.push_back(std::move(*next));
    }
    return formatted("{} {}", agreed, hash);
  });
  check_alike(results_of(ranks_.world_group->gather_texts(mine)), count, call, trains);
  return drawn;
}

// `all`: a string for each rank: "COUNT SCHEDULE RATES" of what it would run, followed, on the
// first and the last stage, by a hash of its labels and weights.
void Driver::check_alike(const std::vector<std::string>& all, int64_t count, const char* call, bool trains) const {
  std::vector<std::vector<std::string>> words;
  for (const std::string& one : all) words.push_back(split(one, ' '));
  const auto differ = [&](uint32_t rank, size_t word) { return words[rank][word] != words[0][word]; };
  // Stages may have different numbers of parameter groups; then it is unknown which ones correspond.
  const auto groups = [&](uint32_t rank) { return std::count(words[rank][2].begin(), words[rank][2].end(), ','); };
  for (uint32_t rank = 1; rank < words.size(); ++rank) {
    if (differ(rank, 0))
      throw Error(ErrorCode::kMismatch,
                  formatted("{}(): rank {} takes {} micro-batches, and rank 0 {}", call, rank, words[rank][0], words[0][0]),
                  trains ? "call set_train_batch_size() with the same number on every rank"
                         : "evaluate the same data, in the same number of micro-batches, on every stage");
    if (differ(rank, 1))
      throw Error(ErrorCode::kMismatch,
                  formatted("{}(): ranks 0 and {} have different schedules for {} micro-batches", call, rank, count),
                  "let pipe::Options::schedule give every rank the same");
    if (differ(rank, 2) && groups(rank) == groups(0))
      throw Error(
          ErrorCode::kMismatch,
          formatted("{}(): rank 0 has the learning rates {}, and rank {} has {}", call, words[0][2], rank, words[rank][2]),
          "call set_lr() with the same value on every rank, stages included");
  }
  if (!ranks_.mesh->has_pipe_stages()) return;
  const uint32_t first = schedule_->stage_of().front(), last = schedule_->stage_of().back();
  for (const std::vector<uint32_t>& stages : ranks_.mesh->shape().groups(kPipeAxis))
    if (words[stages[first]].back() != words[stages[last]].back())
      throw Error(
          ErrorCode::kMismatch,
          formatted("{}(): ranks {} and {}, the first and the last stage of a pipeline, drew different labels", call,
                    stages[first], stages[last]),
          "give both stages the same data in the same order: a loader with the same seed and the rank along data; what draws "
          "random numbers for a batch must draw the same on both, from a generator of its own");
}

}  // namespace gannet::pipeline
