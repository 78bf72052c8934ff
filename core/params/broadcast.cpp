#include "params/broadcast.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include "base/format.h"

namespace gannet {
namespace {

// Sends the sizes of the indices and values, then their contents.
void broadcast_sparse(const ReductionGroup& ranks, const at::Tensor& tensor, uint32_t root) {
  const at::NoGradGuard no_grad;
  const auto part = [&](const at::Tensor& mine) {  // the result has the root's shape: ranks may differ in numel
    int64_t sizes[8] = {};
    for (int64_t d = 0; d < mine.dim(); ++d) sizes[d] = mine.size(d);
    ranks.host->broadcast(sizes, sizeof sizes, root);
    at::Tensor values =
        ranks.comm->rank() == root ? mine.contiguous() : at::empty(at::IntArrayRef(sizes, mine.dim()), mine.options());
    broadcast(ranks, values, root);
    return values;
  };
  at::Tensor whole;
  if (tensor.layout() == at::kSparse) {
    int64_t coalesced = tensor.is_coalesced() ? 1 : 0;
    ranks.host->broadcast(&coalesced, sizeof coalesced, root);
    const at::Tensor indices = part(tensor._indices()), values = part(tensor._values());
    whole = at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes(), values.options().layout(at::kSparse), coalesced != 0);
  } else if (tensor.layout() == at::kMkldnn || tensor.layout() == at::kJagged) {
    throw Error(ErrorCode::kUnsupported,
                formatted("a buffer of layout {} cannot be sent to other ranks", c10::str(tensor.layout())),
                "keep it dense or sparse (COO, CSR, CSC, BSR, BSC)");
  } else {
    const bool by_rows = tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr;
    const at::Tensor compressed = part(by_rows ? tensor.crow_indices() : tensor.ccol_indices()),
                     plain = part(by_rows ? tensor.col_indices() : tensor.row_indices()), values = part(tensor.values());
    whole = at::_sparse_compressed_tensor_unsafe(compressed, plain, values, tensor.sizes(), tensor.options());
  }
  if (ranks.comm->rank() != root) const_cast<at::Tensor&>(tensor).set_data(whole);
}

}  // namespace

// The tensor is sent as bytes: a sum would need a dtype that the Comm can add, but a copy does not.
void broadcast(const ReductionGroup& ranks, const at::Tensor& tensor, uint32_t root) {
  if (ranks.comm->size() == 1 || !tensor.defined()) return;
  if (tensor.layout() != at::kStrided) return broadcast_sparse(ranks, tensor, root);
  if (tensor.numel() == 0) return;
  const at::Tensor flat = tensor.resolve_conj().resolve_neg().contiguous();
  ranks.comm->broadcast(flat, root).block();
  if (flat.data_ptr() != tensor.data_ptr()) tensor.copy_(flat);
}

void broadcast(const RankContext& context, const at::Tensor& tensor, uint32_t root) {
  broadcast(context.ranks_of(nullptr), tensor, root);
}

}  // namespace gannet
