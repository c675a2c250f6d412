// Sources may include it; what it declares is in host_kernels.h, which is always there.
#pragma once
