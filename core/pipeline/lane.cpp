#include "pipeline/lane.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/format.h"
#include "base/text.h"
#include "control/world.h"

namespace gannet::pipeline {
namespace {

// The first message of a header has this many numbers; what a longer header has beyond them follows
// in a second one.
constexpr size_t kFirst = 64;

constexpr int64_t kDefined = 1, kRequiresGrad = 2;  // flags of a tensor in a header

std::vector<int64_t> header_of(int64_t number, const Wire& tensors) {
  std::vector<int64_t> header{0, number, static_cast<int64_t>(tensors.size())};
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      header.push_back(0);
      continue;
    }
    header.insert(header.end(), {tensor.requires_grad() ? kDefined | kRequiresGrad : kDefined,
                                 static_cast<int64_t>(tensor.scalar_type()), tensor.dim()});
    header.insert(header.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  header[0] = static_cast<int64_t>(header.size());
  header.resize(std::max(header.size(), kFirst));
  return header;
}

// Allocates the tensors that a header describes.
Wire tensors_for(const std::vector<int64_t>& header, at::Device device, std::vector<bool>& requires_grad) {
  Wire tensors(static_cast<size_t>(header[2]));
  requires_grad.assign(tensors.size(), false);
  size_t next = 3;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const int64_t flags = header[next++];
    if ((flags & kDefined) == 0) continue;
    const auto dtype = static_cast<at::ScalarType>(header[next++]);
    const auto dim = static_cast<size_t>(header[next++]);
    const std::vector<int64_t> sizes(header.begin() + static_cast<std::ptrdiff_t>(next),
                                     header.begin() + static_cast<std::ptrdiff_t>(next + dim));
    next += dim;
    tensors[t] = at::empty(sizes, at::TensorOptions().dtype(dtype).device(device));
    requires_grad[t] = (flags & kRequiresGrad) != 0;
  }
  return tensors;
}

void refuse_layout(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() != at::kStrided)
    throw Error(ErrorCode::kUnsupported, "a layer at the end of a pipeline stage returned a sparse tensor",
                "make it dense in that layer, with to_dense()");
}

}  // namespace

Lane::Lane(const RankContext& ranks, const std::string& name)
    : ranks_(ranks),
      host_(ranks.process_group->world()->host_comm(), ranks.mesh->pipe()->links().host.ranks(),
            formatted("{}/{}{}", ranks.mesh->pipe()->links().host.name(), name, ranks.number_in_group)),
      group_(*ranks.device_comm, host_.ranks(), formatted("{}/device", host_.name())),
      device_(group_, [&ranks] { return ranks.current_stream(); }, ranks.comm_memory()) {
  host_.barrier();  // after it all members are connected, so that rank 0 and its store may end early
  group_.start(collective::barrier(), nullptr).wait();
}

void Lane::send(uint32_t stage, int64_t number, const Wire& tensors) {
  while (!in_flight_.empty() && in_flight_.front()->is_over()) {
    in_flight_.front()->header_work.wait();
    in_flight_.front()->tensors_work.wait();
    in_flight_.pop_front();
  }
  auto sent = std::make_unique<Sent>();
  std::vector<DeviceComm::SentTensor> messages;
  for (const at::Tensor& tensor : tensors) {
    refuse_layout(tensor);
    if (!tensor.defined() || tensor.numel() == 0) continue;
    messages.push_back({stage, tensor.detach().to(ranks_.device).resolve_conj().resolve_neg().contiguous()});
  }
  sent->header = header_of(number, tensors);
  std::vector<HostGroup::SentBytes> parts{{stage, sent->header.data(), kFirst * sizeof(int64_t)}};
  if (const size_t rest = sent->header.size() - kFirst; rest > 0)
    parts.push_back({stage, sent->header.data() + kFirst, rest * sizeof(int64_t)});
  sent->header_work = host_.start_exchange(parts, {});
  if (!messages.empty()) sent->tensors_work = device_.exchange(messages, {});
  in_flight_.push_back(std::move(sent));
}

Wire Lane::receive(uint32_t stage, int64_t number, std::vector<bool>& requires_grad) {
  std::vector<int64_t> header(kFirst);
  host_.start_exchange({}, {{stage, header.data(), kFirst * sizeof(int64_t)}}).wait();
  if (const size_t rest = static_cast<size_t>(header[0]) > kFirst ? static_cast<size_t>(header[0]) - kFirst : 0; rest > 0) {
    header.resize(static_cast<size_t>(header[0]));
    host_.start_exchange({}, {{stage, header.data() + kFirst, rest * sizeof(int64_t)}}).wait();
  }
  GANNET_CHECK(header[1] == number, "stages run the same schedule");
  Wire tensors = tensors_for(header, ranks_.device, requires_grad);
  std::vector<DeviceComm::ReceivedTensor> messages;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.numel() > 0) messages.push_back({stage, tensor});
  if (!messages.empty()) device_.exchange({}, messages).block();
  return tensors;
}

void Lane::finish() {
  for (auto& sent : in_flight_) {
    sent->header_work.wait();
    sent->tensors_work.wait();
  }
  in_flight_.clear();
}

}  // namespace gannet::pipeline
