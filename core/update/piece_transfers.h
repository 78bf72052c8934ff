// Transfers pieces of gradients and parameters between separate device memory and the host's update
// (host_update.h). Without a HostUpdate, pieces are updated in place and every call is a no-op.
#pragma once

#include <gannet/abi.h>

#include <cstddef>
#include <vector>

#include "params/pieces.h"
#include "params/range.h"
#include "update/host_update.h"

namespace gannet {

class PieceTransfers {
 public:
  /// `gradients_on_host`: gradients are already in host memory. `stream`: the stream that wrote
  /// gradients and parameters.
  PieceTransfers(HostUpdate* host, const Range& range, const std::vector<Piece>& pieces, bool gradients_on_host, void* stream)
      : host_(host),
        range_(range),
        pieces_(pieces),
        gradients_on_host_(gradients_on_host),
        param_on_device_(range.placement == Placement::kDevice),
        stream_(stream) {}

  bool is_to_host() const { return host_ != nullptr; }
  /// Call for the pieces in order, before each piece's use(). A no-op past the last piece.
  void fetch(size_t piece) {
    if (!host_ || piece >= pieces_.size()) return;
    host_->fetch(piece, gradients_on_host_ ? at::Tensor() : pieces_[piece].grad,
                 param_on_device_ ? range_.param_of(pieces_[piece].place) : at::Tensor(), stream_);
  }
  /// Waits until the piece has arrived and points the arguments at it.
  void use(size_t piece, gannet_update_args& args) {
    if (!host_) return;
    host_->wait(piece);
    if (!gradients_on_host_) args.grad = host_->grad(piece);
    if (param_on_device_) (range_.has_master_copy() ? args.out : args.param) = host_->param(piece);
  }
  void give_back(size_t piece) {
    if (host_) host_->give_back(piece);
  }
  /// Waits until everything is on the device.
  void finish() {
    if (host_) host_->finish();
  }

 private:
  HostUpdate* const host_;
  const Range& range_;
  const std::vector<Piece>& pieces_;
  const bool gradients_on_host_, param_on_device_;
  void* const stream_;
};

}  // namespace gannet
