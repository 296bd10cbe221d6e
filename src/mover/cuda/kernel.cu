// The kernel that moves blocks: each warp takes the next piece, copies it and sums it.
//
// It reads the pieces from pinned memory, the next one while it copies the present one, and writes
// each piece's sum there. A few thread blocks are enough to fill the link, so the kernel leaves the
// rest of the device to whatever else runs.
#include "mover/cuda/kernel_body.h"

using namespace stemma::mover;

namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kPieceWords = sizeof(Piece) / sizeof(uint32_t);
static_assert(kPieceWords <= kLanes);

// A lane's part of a piece: one read of the host's memory for the whole warp. It is not taken from
// a cache, because the slot had another piece before.
__device__ uint32_t fetch(const Piece* pieces, uint32_t at, uint32_t count, uint32_t lane) {
  if (at >= count || lane >= kPieceWords) return 0;
  return __ldcv(reinterpret_cast<const uint32_t*>(pieces + at) + lane);
}

__device__ uint64_t both(uint32_t mine, uint32_t word) {
  const uint64_t low = __shfl_sync(~0U, mine, word);
  const uint64_t high = __shfl_sync(~0U, mine, word + 1);
  return high << 32 | low;
}

__device__ Piece together(uint32_t mine) {
  Piece piece;
  piece.page = both(mine, 0);
  piece.packed = both(mine, 2);
  piece.sum = 0;
  piece.first = __shfl_sync(~0U, mine, 6);
  piece.bytes = __shfl_sync(~0U, mine, 7);
  piece.word = __shfl_sync(~0U, mine, 8);
  piece.shape = __shfl_sync(~0U, mine, 9);
  piece.item = __shfl_sync(~0U, mine, 10);
  piece.tokens = __shfl_sync(~0U, mine, 11);
  return piece;
}
static_assert(offsetof(Piece, first) == 24 && offsetof(Piece, tokens) == 44);

template <bool kSum>
__device__ void move_all(Piece* pieces, uint32_t count, const Shape* shapes, Way way) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t warps = gridDim.x * (blockDim.x / kLanes);
  // Neighbours go to different thread blocks, so that few pieces are spread over all of them.
  uint32_t at = threadIdx.x / kLanes * gridDim.x + blockIdx.x;
  uint32_t next = fetch(pieces, at, count, lane);
  for (; at < count; at += warps) {
    const Piece piece = together(next);
    next = fetch(pieces, at + warps, count, lane);
    uint64_t sum = move_piece<kSum>(piece, shapes[piece.shape], way, lane, kLanes);
    if (!kSum) continue;
    __syncwarp();
    for (uint32_t step = kLanes / 2; step != 0; step /= 2) {
      sum += __shfl_down_sync(~0U, sum, step);
    }
    if (lane == 0) pieces[at].sum = sum;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(1024)
    stemma_move(Piece* pieces, uint32_t count, const Shape* shapes, uint32_t way, uint32_t sum) {
  if (sum != 0) {
    move_all<true>(pieces, count, shapes, static_cast<Way>(way));
  } else {
    move_all<false>(pieces, count, shapes, static_cast<Way>(way));
  }
}
