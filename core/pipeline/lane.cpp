#include "pipeline/lane.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "base/text.h"
#include "control/world.h"

namespace gannet::pipeline {
namespace {

// The first message of a header has kFirst numbers; the rest of a longer header follows in a second
// message. A header begins with kPrefix numbers: its length, the message's number, and whether the
// receiver's prediction was right. The layout follows.
constexpr size_t kFirst = 64, kPrefix = 3;

constexpr int64_t kDefined = 1, kRequiresGrad = 2;  // flags of a tensor in a layout

std::vector<int64_t> layout_of(const Wire& tensors) {
  std::vector<int64_t> layout{static_cast<int64_t>(tensors.size())};
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      layout.push_back(0);
      continue;
    }
    layout.insert(layout.end(), {tensor.requires_grad() ? kDefined | kRequiresGrad : kDefined,
                                 static_cast<int64_t>(tensor.scalar_type()), tensor.dim()});
    layout.insert(layout.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  return layout;
}

std::vector<int64_t> header_of(int64_t number, bool is_as_predicted, const std::vector<int64_t>& layout) {
  std::vector<int64_t> header{static_cast<int64_t>(kPrefix + layout.size()), number, is_as_predicted ? 1 : 0};
  header.insert(header.end(), layout.begin(), layout.end());
  header.resize(std::max(header.size(), kFirst));
  return header;
}

// Allocates the tensors of a layout.
Wire tensors_for(const std::vector<int64_t>& layout, at::Device device) {
  Wire tensors(static_cast<size_t>(layout[0]));
  size_t next = 1;
  for (at::Tensor& tensor : tensors) {
    if ((layout[next++] & kDefined) == 0) continue;
    const auto dtype = static_cast<at::ScalarType>(layout[next++]);
    const auto dim = static_cast<size_t>(layout[next++]);
    tensor = at::empty(at::IntArrayRef(layout.data() + next, dim), at::TensorOptions().dtype(dtype).device(device));
    next += dim;
  }
  return tensors;
}

std::vector<bool> flags_of(const std::vector<int64_t>& layout) {
  std::vector<bool> requires_grad(static_cast<size_t>(layout[0]));
  size_t next = 1;
  for (size_t t = 0; t < requires_grad.size(); ++t) {
    const int64_t flags = layout[next++];
    requires_grad[t] = (flags & kRequiresGrad) != 0;
    if ((flags & kDefined) != 0) next += 2 + static_cast<size_t>(layout[next + 1]);
  }
  return requires_grad;
}

void refuse_layout(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() != at::kStrided)
    throw Error(ErrorCode::kUnsupported, "a layer at the end of a pipeline stage returned a sparse tensor",
                "make it dense in that layer, with to_dense()");
}

}  // namespace

Lane::Way::Way(const RankContext& ranks, const HostGroup& host, const char* name)
    : group(*ranks.device_comm, host.ranks(), formatted("{}/{}", host.name(), name)),
      device(group, [&ranks] { return ranks.current_stream(); }, ranks.comm_memory()) {
  group.start(collective::barrier(), nullptr).wait();
}

Lane::Lane(const RankContext& ranks, const std::string& name, bool both_ways)
    : ranks_(ranks),
      host_(ranks.process_group->world()->host_comm(), ranks.mesh->pipe()->links().host.ranks(),
            formatted("{}/{}{}", ranks.mesh->pipe()->links().host.name(), name, ranks.number_in_group)) {
  host_.barrier();  // after this all members are connected, so rank 0 and its store may exit early
  ways_.push_back(std::make_unique<Way>(ranks, host_, "device"));
  if (both_ways && keeps_order()) ways_.push_back(std::make_unique<Way>(ranks, host_, "device to lower stages"));
}

Lane::~Lane() {
  if (std::none_of(incoming_.begin(), incoming_.end(), [](const auto& one) { return one.second.left > 0; })) return;
  try {
    ranks_.device_comm->abort();
    host_.comm().abort();
  } catch (const Error&) {  // the pending works report the lost peer
  }
}

std::vector<DeviceComm::SentTensor> Lane::to_send(uint32_t stage, const Wire& tensors) const {
  std::vector<DeviceComm::SentTensor> messages;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.numel() > 0)
      messages.push_back({stage, tensor.detach().to(ranks_.device).resolve_conj().resolve_neg().contiguous()});
  return messages;
}

void Lane::send(uint32_t stage, int64_t number, const Wire& tensors) {
  while (!in_flight_.empty() && in_flight_.front()->is_over()) {
    in_flight_.front()->wait();
    in_flight_.pop_front();
  }
  for (const at::Tensor& tensor : tensors) refuse_layout(tensor);
  Past& past = past_sent_[stage];
  Layout layout = layout_of(tensors);
  const bool is_as_predicted = predicts(past) && past.last == layout;
  auto sent = std::make_unique<SentMessage>();
  sent->header = header_of(number, is_as_predicted, layout);
  std::vector<HostGroup::SentBytes> parts{{stage, sent->header.data(), kFirst * sizeof(int64_t)}};
  if (const size_t rest = sent->header.size() - kFirst; rest > 0)
    parts.push_back({stage, sent->header.data() + kFirst, rest * sizeof(int64_t)});
  sent->header_work = host_.start_exchange(parts, {});
  if (predicts(past) && !is_as_predicted)
    if (const auto dropped = to_send(stage, tensors_for(past.last, ranks_.device)); !dropped.empty())
      sent->dropped_work = way(host_.rank(), stage).exchange(dropped, {});
  if (const auto messages = to_send(stage, tensors); !messages.empty())
    sent->tensors_work = way(host_.rank(), stage).exchange(messages, {});
  past.add(std::move(layout));
  in_flight_.push_back(std::move(sent));
}

DeviceWork Lane::start_receive(uint32_t stage, const Wire& tensors) {
  std::vector<DeviceComm::ReceivedTensor> messages;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.numel() > 0) messages.push_back({stage, tensor});
  return messages.empty() ? DeviceWork() : way(stage, host_.rank()).exchange({}, messages);
}

void Lane::post_next(uint32_t stage, Incoming& from) {
  if (from.left == 0) return;
  from.header.assign(kFirst, 0);
  from.header_work = host_.start_exchange({}, {{stage, from.header.data(), kFirst * sizeof(int64_t)}});
  if (!predicts(from.past)) return;
  from.predicted = tensors_for(from.past.last, ranks_.device);
  from.predicted_work = start_receive(stage, from.predicted);
}

void Lane::expect(const std::map<uint32_t, int64_t>& messages_from) {
  for (const auto& [stage, count] : messages_from) {
    Incoming& from = incoming_[stage];
    from.left = count;
    post_next(stage, from);
  }
}

Wire Lane::receive(uint32_t stage, int64_t number, std::vector<bool>& requires_grad) {
  Incoming& from = incoming_[stage];
  GANNET_CHECK(from.left > 0, "expect() counts every message");
  from.header_work.wait();
  std::vector<int64_t> header = std::move(from.header);
  const auto all = static_cast<size_t>(header[0]);
  if (all > kFirst) {
    header.resize(all);
    host_.start_exchange({}, {{stage, header.data() + kFirst, (all - kFirst) * sizeof(int64_t)}}).wait();
  }
  GANNET_CHECK(header[1] == number, "stages run the same schedule");
  Layout layout(header.begin() + kPrefix, header.begin() + static_cast<std::ptrdiff_t>(all));
  Wire tensors;
  if (predicts(from.past)) {
    from.predicted_work.wait();
    tensors = std::exchange(from.predicted, {});
  }
  if (header[2] == 0) {
    tensors = tensors_for(layout, ranks_.device);
    start_receive(stage, tensors).block();
  }
  requires_grad = flags_of(layout);
  from.past.add(std::move(layout));
  --from.left;
  post_next(stage, from);
  return tensors;
}

void Lane::finish() {
  for (auto& sent : in_flight_) sent->wait();
  in_flight_.clear();
}

}  // namespace gannet::pipeline
