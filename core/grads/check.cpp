#include "grads/check.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "base/text.h"
#include "grads/grad_norm.h"
#include "params/pieces.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

constexpr size_t kPlaceDigits = 36;

// The sum of squares in fp64. It is computed in parts, because LibTorch's norm makes an fp64 copy.
at::Tensor squares_on_device(const at::Tensor& flat) {
  constexpr int64_t kPartNumel = 16 << 20;
  at::Tensor sum;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPartNumel) {
    const at::Tensor part =
        at::linalg_vector_norm(flat.narrow(0, begin, std::min(kPartNumel, flat.numel() - begin)), 2, {}, false, at::kDouble)
            .square();
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

// The kinds of gradients, which differ in the ranks that count them: gradients shared with other
// ranks along the tensor axis; gradients of boxes that only this rank has; this rank's own
// gradients of parameters that every rank has; gradients of its experts, also with a tensor axis;
// and gradients that another pipeline stage counts.
enum GradientKind : size_t { kShared, kBoxes, kOwn, kExperts, kElsewhere, kKinds };
GradientKind kind_of(const Range& range) {
  if (range.is_counted_elsewhere) return kElsewhere;
  return range.has_unreduced_gradients   ? kOwn
         : range.is_of_experts()         ? kExperts
         : range.is_split_along_tensor() ? kBoxes
                                         : kShared;
}
using Squares = std::array<double, kKinds>;

// Returns the sum over all ranks, which is the same on every rank. `bad`: 1 if this rank has an
// infinite or NaN element, else 0; it is replaced by its sum over all ranks.
double total_of(const Squares& squares, const std::deque<Range>& ranges, const NormRanks& ranks, double* bad = nullptr) {
  double totals[] = {squares[kShared], bad ? *bad : 0, squares[kBoxes]};
  if (ranks.own) {
    double own[] = {squares[kOwn], totals[1]};
    ranks.own->all_reduce(own, 2);
    totals[0] += own[0] / ranks.own->size() * ranks.unreduced_ratio * ranks.unreduced_ratio;
    totals[1] = own[1];
  }
  // If every rank has its experts' full gradient, only the other experts' sums are missing.
  double experts[] = {squares[kExperts], totals[1]};
  if (ranks.experts) {
    ranks.experts->all_reduce(experts, 2);
    totals[1] = experts[1];
  }
  totals[0] += experts[0];
  const bool is_split =
      std::any_of(ranges.begin(), ranges.end(), [](const Range& range) { return range.is_split_along_tensor(); });
  if (ranks.data) ranks.data->all_reduce(totals, is_split ? 3 : 2);
  double total[] = {ranks.model && !ranks.counts ? totals[2] : totals[0] + totals[2], totals[1]};
  if (ranks.model) ranks.model->all_reduce(total, 2);
  if (bad) *bad = total[1];
  return total[0];
}

// The norm of finite fp64 gradients with overflowing squares: divides every element by the largest
// one first. Either every rank calls it or none does, since all have the same sum of squares.
double norm_of_large(const std::deque<Range>& ranges, const NormRanks& ranks) {
  double largest = 0;
  for (auto& range : ranges)
    for (const Piece& piece : pieces_of(range, kNoPages)) largest = std::max(largest, piece.grad.abs().max().item<double>());
  if (HostGroup* others = ranks.own ? ranks.own : ranks.data) others->all_reduce(&largest, 1, GANNET_MAX);
  for (HostGroup* others : {ranks.experts, ranks.model})
    if (others) others->all_reduce(&largest, 1, GANNET_MAX);
  Squares squares{};
  for (auto& range : ranges)
    for (const Piece& piece : pieces_of(range, kNoPages))
      squares[kind_of(range)] += piece.grad.to(at::kDouble).div(largest).square().sum().item<double>();
  return largest * std::sqrt(total_of(squares, ranges, ranks));
}

// Copies all sums at once, so that the host waits once. Returns whether the gradients on the device
// are finite, judging by the sums or, as fp64 squares may overflow (norm_of_large), by the elements.
bool add_from_device(const std::array<at::Tensor, kKinds>& on_device, const std::deque<Range>& ranges, Squares& squares) {
  std::vector<at::Tensor> sums;
  std::vector<size_t> kinds;
  for (size_t kind = 0; kind < kKinds; ++kind)
    if (on_device[kind].defined()) {
      sums.push_back(on_device[kind]);
      kinds.push_back(kind);
    }
  if (sums.empty()) return true;
  const at::Tensor here = at::stack(sums).cpu();
  bool finite = true;
  for (size_t i = 0; i < kinds.size(); ++i) {
    squares[kinds[i]] += here.const_data_ptr<double>()[i];
    finite = finite && std::isfinite(here.const_data_ptr<double>()[i]);
  }
  const auto is_finite = [](const Range& range) {
    for (const Piece& piece : pieces_of(range, kNoPages))
      if (!piece.grad.is_cpu() && !at::isfinite(piece.grad).all().item<bool>()) return false;
    return true;
  };
  const bool is_wide = std::any_of(ranges.begin(), ranges.end(), [](const Range& r) { return r.grad_dtype == at::kDouble; });
  return finite || (is_wide && std::all_of(ranges.begin(), ranges.end(), is_finite));
}

}  // namespace

GradientCheck check_gradients(const std::deque<Range>& ranges, const NormRanks& ranks, double scale) {
  Squares squares{};
  bool finite = true;
  std::array<at::Tensor, kKinds> on_device;  // [] fp64
  for (auto& range : ranges) {
    for (const Piece& piece : pieces_of(range, kNoPages)) {
      if (piece.grad.is_cpu()) {
        const NormResult part =
            sum_of_squares(piece.grad.const_data_ptr(), to_dtype(range.grad_dtype), static_cast<uint64_t>(piece.grad.numel()), 0);
        squares[kind_of(range)] += part.sum_of_squares;
        finite = finite && part.finite;
      } else {
        const at::Tensor part = squares_on_device(piece.grad.flatten());
        at::Tensor& sum = on_device[kind_of(range)];
        sum = sum.defined() ? sum.add_(part) : part;
      }
    }
  }
  finite = add_from_device(on_device, ranges, squares) && finite;
  double bad = finite ? 0 : 1;
  const bool travels = ranks.data || ranks.model || ranks.own || ranks.experts;
  const double total = total_of(travels && !finite ? Squares{} : squares, ranges, ranks, &bad);
  finite = bad == 0;
  if (finite && std::isinf(total)) return {norm_of_large(ranges, ranks) * scale, true};
  return {std::sqrt(total) * scale, finite};
}

double clip_factor(double norm, double limit, double factor) {
  if (limit > 0) {
    const double excess = (norm + 1e-6) / limit;  // as in DeepSpeed's ZeRO, unscale_and_clip_grads
    if (excess > 1) factor /= excess;
  }
  return factor;
}

std::string first_non_finite(const std::deque<Range>& ranges, bool loss_was_finite,
                             const std::function<std::vector<std::string>(const std::string&)>& gather) {
  std::string found;  // starts with the element's zero-padded position, so that these strings sort by it
  for (size_t r = 0; r < ranges.size(); ++r) {
    const Range& range = ranges[r];
    for (const auto& part : range.parts) {
      if (!found.empty()) break;
      const auto& parameter = range.parameters[part.tensor];
      const at::Tensor grad = range.grad_of(part);
      const at::Tensor finite = at::isfinite(grad);
      if (finite.all().item<bool>()) continue;
      const int64_t index = finite.logical_not().to(at::kByte).argmax().item<int64_t>();
      char place[64];
      std::snprintf(place, sizeof(place), "%06zu%010zu%020lld", r, part.tensor, static_cast<long long>(part.begin));
      found = formatted("{}{}{} at element {}{}", place, formatted("the gradient of '{}' is ", parameter.name),
                        short_number(grad[index].item<double>()), part.begin + index,
                        loss_was_finite ? "" : " (the loss was not finite either)");
    }
  }
  for (const auto& text : gather(found))
    if (!text.empty() && (found.empty() || text < found)) found = text;
  return found.empty() ? "the gradients' norm is too large for a number" : found.substr(kPlaceDigits);
}

}  // namespace gannet
