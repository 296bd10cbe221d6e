// The files of this machine, with queues that read and write past the page cache: io_uring where
// the kernel allows it, otherwise a few threads.
// Threading: as Files.
#pragma once

#include <memory>

#include "stemma/tier/disk_tier.h"
#include "tier/files.h"

namespace stemma::tier::disk {

std::unique_ptr<Files> make_local_files(IoWay way = IoWay::automatic);

}  // namespace stemma::tier::disk
