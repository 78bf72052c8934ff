#include "config/batch.h"

#include <gannet/error.h>

#include <limits>

#include "base/format.h"

namespace gannet::config {
namespace {

// a * b, saturated at the largest integer. A saturated batch size never fits, and the error shows
// its factors.
int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}

std::string show(const char* name, int64_t value) { return formatted("{} {}", name, value); }

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";

// `unit` is the smallest possible number of samples in a step; `parts` names its factors.
[[noreturn]] void not_a_multiple(int64_t train, int64_t unit, const std::string& parts, const std::string& where) {
  const std::string what = train < unit ? " is less than " : " is not a multiple of ";
  const int64_t below = train / unit * unit;
  std::string next = formatted("the nearest that fits is {}", below > 0 ? below : unit);
  if (below > 0 && below <= std::numeric_limits<int64_t>::max() - unit)
    next = formatted("the nearest that fit are {} and {}", below, below + unit);
  throw Error(
      ErrorCode::kConfig,
      where + show(kTrain, train) + what + parts + (parts.find(" x ") == std::string::npos ? "" : formatted(" = {}", unit)),
      next);
}

}  // namespace

Batch complete_batch(const GivenBatch& given, int64_t world_size, const std::string& where, bool rank_is_set) {
  for (const auto& [name, value] :
       {std::pair(kTrain, given.train), std::pair(kMicro, given.micro), std::pair(kAccumulation, given.accumulation)}) {
    if (value && *value < 1)
      throw Error(ErrorCode::kConfig, formatted("{}{} is not above 0", where, show(name, *value)), "the smallest batch is 1");
  }
  const std::string world = show("world size", world_size);
  if (!given.train && !given.micro)
    throw Error(ErrorCode::kConfig, formatted("{}neither {} nor {} is given", where, kTrain, kMicro),
                formatted("give {}, the samples of one forward on one rank; the rest follows", kMicro));
  if (!given.train) {
    const int64_t accumulation = given.accumulation.value_or(1);
    const int64_t train = product(product(*given.micro, accumulation), world_size);
    if (train == std::numeric_limits<int64_t>::max())
      throw Error(ErrorCode::kConfig,
                  formatted("{}{} x {} x {} is more than an integer holds", where, show(kMicro, *given.micro),
                            show(kAccumulation, accumulation), world),
                  "choose smaller numbers");
    return {train, *given.micro, accumulation};
  }
  const int64_t train = *given.train;
  if (given.micro && given.accumulation) {
    const int64_t per_rank = product(*given.micro, *given.accumulation);
    if (product(per_rank, world_size) == train) return {train, *given.micro, *given.accumulation};
    const bool fits_another_world = train % per_rank == 0;
    std::string next = std::string("leave one of the three out, and it is computed") +
                       (fits_another_world ? formatted("; they fit world size {}", train / per_rank) : "");
    if (world_size == 1 && !rank_is_set && train > per_rank)
      next = formatted("world size is 1 because RANK is not set: start with `gannet run --num_procs {}`",
                       fits_another_world ? std::to_string(train / per_rank) : "N");
    throw Error(ErrorCode::kConfig,
                formatted("{}{} is not {} x {} x {} = {}", where, show(kTrain, train), show(kMicro, *given.micro),
                          show(kAccumulation, *given.accumulation), world, product(per_rank, world_size)),
                next);
  }
  if (given.micro) {
    const int64_t unit = product(*given.micro, world_size);
    if (train % unit != 0) not_a_multiple(train, unit, formatted("{} x {}", show(kMicro, *given.micro), world), where);
    return {train, *given.micro, train / unit};
  }
  const int64_t accumulation = given.accumulation.value_or(1);
  const int64_t unit = product(accumulation, world_size);
  if (train % unit != 0)
    not_a_multiple(train, unit, given.accumulation ? formatted("{} x {}", show(kAccumulation, accumulation), world) : world,
                   where);
  return {train, train / unit, accumulation};
}

int64_t implied_world_size(const GivenBatch& given) {
  if (!given.train || !given.micro || !given.accumulation || *given.micro < 1 || *given.accumulation < 1) return 1;
  const int64_t per_rank = product(*given.micro, *given.accumulation);
  return *given.train >= per_rank && *given.train % per_rank == 0 ? *given.train / per_rank : 1;
}

}  // namespace gannet::config
