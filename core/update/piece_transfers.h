// The gradients and parameters of pieces that live in a device's own memory, on their way to the host's update and back
// (host_update.h). Without a HostUpdate the pieces are updated where they lie, and every call does nothing.
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
  /// `gradients_on_host`: they are in host memory already. `stream`: what wrote gradients and parameters.
  PieceTransfers(HostUpdate* host, const Range& range, const std::vector<Piece>& pieces, bool gradients_on_host, void* stream)
      : host_(host),
        range_(range),
        pieces_(pieces),
        gradients_on_host_(gradients_on_host),
        param_on_device_(range.placement == Placement::kDevice),
        stream_(stream) {}

  bool is_to_host() const { return host_ != nullptr; }
  /// In order, each before it is used; one past the last piece is none.
  void fetch(size_t piece) {
    if (!host_ || piece >= pieces_.size()) return;
    host_->fetch(piece, gradients_on_host_ ? at::Tensor() : pieces_[piece].grad,
                 param_on_device_ ? range_.param_of(pieces_[piece].place) : at::Tensor(), stream_);
  }
  /// Waits until the piece has come, and has the arguments point to where.
  void use(size_t piece, gannet_update_args& args) {
    if (!host_) return;
    host_->wait(piece);
    if (!gradients_on_host_) args.grad = host_->grad(piece);
    if (param_on_device_) (range_.has_master_copy() ? args.out : args.param) = host_->param(piece);
  }
  void give_back(size_t piece) {
    if (host_) host_->give_back(piece);
  }
  /// Waits until all is on the device.
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
