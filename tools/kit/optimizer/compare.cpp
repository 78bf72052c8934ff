#include "kit/optimizer/compare.h"

#include <cmath>
#include <cstring>

#include "base/format.h"
#include "base/text.h"
#include "kit/numbers.h"
#include "kit/optimizer/extents.h"

namespace gannet::kit {
namespace {

std::string index_text(const TensorSpec& tensor) { return formatted("tensor '{}' {}", tensor.name, shape_text(tensor.shape)); }

// Throws CheckFailure with the first element in which the two arrays differ.
void require_equal(const Bytes& found, const Bytes& expected, gannet_dtype dtype, const std::string& name,
                   const std::string& where) {
  if (found == expected) return;
  const size_t size = bytes_of(dtype);
  size_t i = 0, count = 0, first = 0;
  for (; i < found.size() / size; ++i)
    if (std::memcmp(found.data() + i * size, expected.data() + i * size, size) != 0 && count++ == 0) first = i;
  throw CheckFailure(formatted("{} is {}, not {}; {} of {} elements differ", name, short_number(get(found.data(), first, dtype)),
                               short_number(get(expected.data(), first, dtype)), count, i),
                     formatted("{}, element {}", where, first));
}

void require_near(const Bytes& found, const Bytes& expected, gannet_dtype dtype, double tolerance, const std::string& name,
                  const std::string& where) {
  double difference = 0, norm = 0, largest = 0;
  size_t worst = 0;
  for (size_t i = 0; i < expected.size() / bytes_of(dtype); ++i) {
    const double a = get(found.data(), i, dtype), b = get(expected.data(), i, dtype), apart = std::fabs(a - b);
    difference += apart * apart;
    norm += b * b;
    if (!(apart <= largest)) {
      largest = apart;
      worst = i;
    }
  }
  const double relative = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
  if (!(relative <= tolerance) && difference != 0)
    throw CheckFailure(formatted("{} differs by {} of its 2-norm, {} is allowed; the largest difference is {}, not {}", name,
                                 short_number(relative), short_number(tolerance), short_number(get(found.data(), worst, dtype)),
                                 short_number(get(expected.data(), worst, dtype))),
                       formatted("{}, element {}", where, worst));
}

// Calls compare(found, expected, dtype, name, where) for all arrays.
template <class Compare>
void for_all(const TrainingResult& found, const TrainingResult& expected, const Problem& problem, const std::string& what,
             bool with_states, const Compare& compare) {
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const std::string where = formatted("{}; {}", what, index_text(problem.tensors[t]));
    compare(found.params[t], expected.params[t], problem.types.param, "the parameter", where);
    if (problem.types.out != GANNET_DTYPE_NONE)
      compare(found.outs[t], expected.outs[t], problem.types.out, "the copy `out`", where);
    for (size_t s = 0; with_states && s < found.described.size(); ++s)
      if (!found.described[s].is_of_group())
        compare(found.states[t][s], expected.states[t][s], type_of(found.described[s], problem.types.param),
                formatted("the state '{}'", found.described[s].name), where);
  }
  if (!with_states) return;
  for (size_t g = 0; g < found.group_states[0].size(); ++g)
    for (size_t s = 0; s < found.described.size(); ++s)
      if (found.described[s].is_of_group())
        compare(found.group_states[0][g][s], expected.group_states[0][g][s], type_of(found.described[s], problem.types.param),
                formatted("the state '{}'", found.described[s].name), formatted("{}; group {}", what, g));
}

}  // namespace

void require_same(const TrainingResult& found, const TrainingResult& expected, const Problem& problem, const std::string& what) {
  for_all(found, expected, problem, what, true, require_equal);
}

void require_close(const TrainingResult& found, const TrainingResult& expected, const Problem& problem, double tolerance,
                   const std::string& what) {
  const bool same_states = found.described == expected.described;
  for_all(found, expected, problem, what, same_states,
          [&](const Bytes& a, const Bytes& b, gannet_dtype dtype, const std::string& name, const std::string& where) {
            require_near(a, b, dtype, tolerance, name, where);
          });
}

void require_finite(const TrainingResult& found, const Problem& problem) {
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    for (uint64_t i = 0; i < problem.tensors[t].numel; ++i)
      if (const double value = get(found.params[t].data(), i, problem.types.param); !std::isfinite(value))
        throw CheckFailure(formatted("the parameter is {}", value),
                           formatted("{}, element {}", index_text(problem.tensors[t]), i));
}

void require_ranks_agree(const TrainingResult& found) {
  for (size_t rank = 1; rank < found.group_states.size(); ++rank)
    for (size_t g = 0; g < found.group_states[rank].size(); ++g)
      for (size_t s = 0; s < found.group_states[rank][g].size(); ++s)
        if (found.group_states[rank][g][s] != found.group_states[0][g][s])
          throw CheckFailure(
              formatted("the state '{}' of group {} differs between rank 0 and rank {}", found.described[s].name, g, rank),
              formatted("{} ranks", found.group_states.size()));
}

}  // namespace gannet::kit
