#include "mover/cuda/kernel_image.h"

#ifdef STEMMA_MOVER_KERNEL
// The assembler puts the file's bytes here.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".hidden stemma_mover_kernel_image\n"
    ".global stemma_mover_kernel_image\n"
    "stemma_mover_kernel_image:\n"
    ".incbin \"" STEMMA_MOVER_KERNEL
    "\"\n"
    ".text\n");
extern "C" const unsigned char stemma_mover_kernel_image[];
#endif

namespace stemma::mover::cuda {

const void* kernel_image() noexcept {
#ifdef STEMMA_MOVER_KERNEL
  return stemma_mover_kernel_image;
#else
  return nullptr;
#endif
}

}  // namespace stemma::mover::cuda
