#include "interfaces/optimizer_description.h"

#include <gannet/error.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/text.h"

namespace gannet::description {
namespace {

// These limits are far above what an optimizer needs; a list that exceeds one is damaged.
constexpr uint64_t kMost = 64, kLargestStride = 4096;
constexpr uint64_t kLargestSquare = 16384;

// The elements of a plugin's array of structs. Each must be at least `least` bytes long.
template <class T>
std::vector<const T*> elements(const T* first, uint64_t count, uint64_t stride, size_t least, const char* what) {
  if (count > kMost) throw Error(ErrorCode::kPlugin, formatted("it declares {} {}, at most {} are possible", count, what, kMost));
  if (count > 0 && (!first || stride < least || stride > kLargestStride || stride % alignof(T)))
    throw Error(ErrorCode::kPlugin, formatted("its list of {} is malformed", what));
  std::vector<const T*> all;
  for (uint64_t i = 0; i < count; ++i)
    all.push_back(reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * stride));
  for (const T* one : all)
    if (one->struct_size < least) throw Error(ErrorCode::kPlugin, formatted("one of its {} has too small a struct_size", what));
  return all;
}

constexpr uint32_t kFlagsOfRanks = GANNET_STATE_OF_RANK | GANNET_STATE_SERVED | GANNET_STATE_LOCAL;
constexpr uint32_t kKnownStateFlags = GANNET_STATE_FROM_PARAMETER | kFlagsOfRanks;

// Returns the flaw in a state of matrices (squares or factors), or in the limit of another state;
// "" if there is none.
std::string flaw_of_matrices(const gannet_state_spec& spec, const gannet_optimizer_description& found) {
  const uint64_t limit = GANNET_HAS(&spec, gannet_state_spec, limit) ? spec.limit : 0;
  const bool is_factor = spec.extent == GANNET_STATE_ROW_FACTOR || spec.extent == GANNET_STATE_COLUMN_FACTOR;
  if (!is_factor && spec.extent != GANNET_STATE_ROW_SQUARE && spec.extent != GANNET_STATE_COLUMN_SQUARE)
    return limit == 0 ? "" : "has a limit, and is neither a square nor a factor";
  const std::string is_one = is_factor ? "is a factor" : "is a square";
  if (!(found.capabilities & GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR))
    return is_one + ", which takes the capability NEEDS_WHOLE_TENSOR";
  if (found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION)
    return is_one + ", which an optimizer that averages gradients itself cannot have";
  if (limit == 0 || limit > kLargestSquare)
    return formatted("{} with a limit of {} {}, which must be from 1 to {}", is_one, limit, is_factor ? "columns" : "rows",
                     kLargestSquare);
  return "";
}

// Returns the flaw in a state's flags, limit or block; "" if there is none.
std::string flaw_of(const gannet_state_spec& spec, const gannet_optimizer_description& found) {
  const uint64_t alignment = std::max<uint64_t>(found.range_alignment, 1);
  if (spec.flags & ~kKnownStateFlags)
    return formatted("has flags that this Gannet does not know (bits {:#x})", spec.flags & ~kKnownStateFlags);
  if (spec.flags != 0 && spec.extent != GANNET_STATE_PER_ELEMENT) return "has flags that only PER_ELEMENT states may have";
  if (spec.flags & (spec.flags - 1)) return "has several flags, which exclude one another";
  if ((spec.flags & kFlagsOfRanks) && !(found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION))
    return "is each rank's own, which takes the capability OWNS_GRAD_REDUCTION";
  if (const std::string flaw = flaw_of_matrices(spec, found); !flaw.empty()) return flaw;
  if (spec.extent != GANNET_STATE_PER_BLOCK) return spec.block == 0 ? "" : "has a block, and is not PER_BLOCK";
  if (spec.block == 0 || (spec.block & (spec.block - 1)) != 0 || alignment % spec.block != 0)
    return formatted("has blocks of {} elements, which must be a power of two that divides range_alignment, {}", spec.block,
                     alignment);
  return "";
}

}  // namespace

std::vector<Optimizer::State> read_states(const gannet_optimizer_description& found) {
  std::vector<Optimizer::State> states;
  for (const gannet_state_spec* each :
       elements(found.states, found.state_count, found.state_stride, GANNET_STATE_SPEC_SIZE_2_0, "states")) {
    const gannet_state_spec& spec = *each;
    if (!spec.name || !*spec.name) bad(formatted("its state number {} has no name", states.size()));
    if (printable(spec.name) != spec.name)
      bad(formatted("its state '{}' has a control character in its name", printable(spec.name)));
    if (spec.dtype > GANNET_BOOL) bad(formatted("its state '{}' has an unknown dtype, {}", spec.name, spec.dtype));
    if (spec.extent < GANNET_STATE_PER_ELEMENT || spec.extent > GANNET_STATE_COLUMN_FACTOR)
      bad(formatted("its state '{}' has an unknown extent, {}", spec.name, spec.extent));
    if (std::isnan(spec.initial_value)) bad(formatted("its state '{}' has NaN as its initial value", spec.name));
    if (const std::string flaw = flaw_of(spec, found); !flaw.empty()) bad(formatted("its state '{}' {}", spec.name, flaw));
    for (const auto& other : states)
      if (other.name == spec.name) bad(formatted("it declares the state '{}' twice", other.name));
    states.push_back({spec.name, static_cast<gannet_dtype>(spec.dtype), static_cast<gannet_state_extent>(spec.extent),
                      spec.initial_value, spec.flags, std::max<uint64_t>(spec.block, 1),
                      GANNET_HAS(&spec, gannet_state_spec, limit) ? spec.limit : 0});
  }
  return states;
}

std::vector<Optimizer::Sum> read_sums(const gannet_optimizer_description& found) {
  std::vector<Optimizer::Sum> sums;
  for (const gannet_sum_spec* spec : elements(found.sums, found.sum_count, found.sum_stride, GANNET_SUM_SPEC_SIZE_2_0, "sums")) {
    if (spec->scope < GANNET_SUM_OF_TENSOR || spec->scope > GANNET_SUM_OF_COLUMN)
      bad(formatted("one of its sums has an unknown scope, {}", spec->scope));
    if (spec->reduce_op < GANNET_SUM || spec->reduce_op > GANNET_MIN)
      bad(formatted("one of its sums has an unknown operation, {}", spec->reduce_op));
    if (spec->round > (sums.empty() ? 0 : sums.back().round + 1) || (!sums.empty() && spec->round < sums.back().round))
      bad("its sums are not in the order of their rounds, counted from 0");
    const uint64_t pass = GANNET_HAS(spec, gannet_sum_spec, pass) ? spec->pass : uint64_t{GANNET_PASS_UPDATE};
    if (pass > GANNET_PASS_PERTURB) bad(formatted("one of its sums has an unknown pass, {}", pass));
    if (pass == GANNET_PASS_PERTURB && !(found.capabilities & GANNET_OPTIMIZER_PERTURBS))
      bad("one of its sums is for perturb(), which takes the capability PERTURBS");
    sums.push_back({static_cast<gannet_sum_scope>(spec->scope), static_cast<gannet_reduce_op>(spec->reduce_op), spec->round,
                    static_cast<gannet_pass>(pass)});
  }
  return sums;
}

namespace {

constexpr uint64_t kKnownCapabilities =
    GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR | GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION |
    GANNET_OPTIMIZER_USES_SEED | GANNET_OPTIMIZER_USES_WORKSPACE | GANNET_OPTIMIZER_PERTURBS | GANNET_OPTIMIZER_SECOND_GRADIENT |
    GANNET_OPTIMIZER_TAKES_LISTS | GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS | GANNET_OPTIMIZER_USES_LOSS;
constexpr uint64_t kLargestAlignment = 4096;
constexpr uint64_t kLargestWorkspace = uint64_t{1} << 40, kLargestWorkspacePerElement = 4096;

// Checks the capabilities introduced in ABI 2.2: each needs its function, and requires that the
// host averages the gradients.
void check_passes(const gannet_optimizer_description& found, const gannet_optimizer_api& api) {
  const bool perturbs = (found.capabilities & GANNET_OPTIMIZER_PERTURBS) != 0;
  const bool takes_second = (found.capabilities & GANNET_OPTIMIZER_SECOND_GRADIENT) != 0;
  if (perturbs && !(GANNET_HAS(&api, gannet_optimizer_api, perturb) && api.perturb))
    bad("it claims PERTURBS, and its function perturb is null");
  if (takes_second && !(GANNET_HAS(&api, gannet_optimizer_api, wants_second_gradient) && api.wants_second_gradient))
    bad("it claims SECOND_GRADIENT, and its function wants_second_gradient is null");
  if ((perturbs || takes_second) && (found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION))
    bad("it averages gradients itself, which excludes PERTURBS and SECOND_GRADIENT");
}

// Checks the capabilities introduced in ABI 2.3. An update() that averages gradients calls
// collectives, so it is not a single launch and cannot be replayed.
void check_calls(const gannet_optimizer_description& found, const gannet_optimizer_api& api) {
  const bool takes_lists = (found.capabilities & GANNET_OPTIMIZER_TAKES_LISTS) != 0;
  const bool takes_numbers = (found.capabilities & GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS) != 0;
  if (takes_lists && !(GANNET_HAS(&api, gannet_optimizer_api, update_many) && api.update_many))
    bad("it claims TAKES_LISTS, and its function update_many is null");
  if (takes_lists && found.sum_count > 0 && !(GANNET_HAS(&api, gannet_optimizer_api, sums_many) && api.sums_many))
    bad("it claims TAKES_LISTS and wants sums, and its function sums_many is null");
  if ((takes_lists || takes_numbers) && (found.capabilities & GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION))
    bad("it averages gradients itself, which excludes TAKES_LISTS and TAKES_DEVICE_NUMBERS");
}

}  // namespace

void check(const gannet_optimizer_description& found, const gannet_optimizer_api& api) {
  check_passes(found, api);
  check_calls(found, api);
  if (found.capabilities & ~kKnownCapabilities)
    bad(formatted("it has capabilities that this Gannet does not know (bits {:#x})", found.capabilities & ~kKnownCapabilities));
  if ((found.capabilities & GANNET_OPTIMIZER_ELEMENTWISE) && (found.capabilities & GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR))
    bad("it is element-wise and needs whole tensors, which is a contradiction");
  if (found.range_alignment > kLargestAlignment || (found.range_alignment & (found.range_alignment - 1)) != 0)
    bad(formatted("it wants ranges at multiples of {} elements, which is not a power of two up to {}", found.range_alignment,
                  kLargestAlignment));
  const bool is_asked = found.workspace_bytes > 0 || found.workspace_bytes_per_element > 0;
  if (is_asked != ((found.capabilities & GANNET_OPTIMIZER_USES_WORKSPACE) != 0))
    bad(is_asked ? "it asks for a workspace, which takes the capability USES_WORKSPACE"
                 : "it claims USES_WORKSPACE, and asks for a workspace of no bytes");
  if (found.workspace_bytes > kLargestWorkspace || found.workspace_bytes_per_element > kLargestWorkspacePerElement)
    bad(formatted("it asks for a workspace of {} bytes and {} for each element, at most {} and {} are possible",
                  found.workspace_bytes, found.workspace_bytes_per_element, kLargestWorkspace, kLargestWorkspacePerElement));
}

}  // namespace gannet::description
