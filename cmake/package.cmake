# cpack (in the build folder) makes three Debian packages:
#
#   gannet-sdk   `gannet`, its conformance kit, the SDK's headers and CMake files; needs nothing else
#   gannet       the libraries, the commands, the plugins; needs gannet-sdk, which has `gannet` itself
#   gannet-dev   headers and CMake files for programs, docs and examples; needs gannet
#
# LibTorch is in no package: GANNET_PACKAGE_LIBTORCH is the folder where the installed libraries look for it.
set(GANNET_PACKAGE_LIBTORCH /opt/libtorch CACHE STRING "where programs of the Debian packages look for LibTorch")
# The default: whoever builds them, under the variables of Debian's own tools; else an address that belongs to nobody (RFC 2606).
set(_contact "Gannet maintainers <maintainers@gannet.invalid>")
if(NOT "$ENV{DEBEMAIL}" STREQUAL "" AND NOT "$ENV{DEBFULLNAME}" STREQUAL "")
  set(_contact "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(GANNET_PACKAGE_CONTACT ${_contact} CACHE STRING "maintainer of the Debian packages: NAME <ADDRESS>")
if(NOT GANNET_PACKAGE_CONTACT MATCHES "^[^<>]+ <[^<>@ ]+@[^<>@ ]+>$")
  message(FATAL_ERROR "GANNET_PACKAGE_CONTACT is '${GANNET_PACKAGE_CONTACT}': dpkg needs NAME <ADDRESS>, "
                      "such as -DGANNET_PACKAGE_CONTACT='Jo Doe <jo@example.org>'")
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gannet)
set(CPACK_PACKAGE_VENDOR Gannet)
set(CPACK_PACKAGE_CONTACT ${GANNET_PACKAGE_CONTACT})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains LibTorch models from DeepSpeed's ds_config.json")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime devel docs sdk)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_fix.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)

# As Debian 12 names them. LibTorch has no package, so dpkg-shlibdeps cannot find these.
set(_cxx "libc6 (>= 2.36), libgcc-s1, libstdc++6 (>= 12)")
set(_same "(= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_SDK_PACKAGE_NAME gannet-sdk)
set(CPACK_DEBIAN_SDK_PACKAGE_DEPENDS "${_cxx}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME gannet)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "${_cxx}, libaio1, libgomp1, libhwy1, libyaml-0-2, zlib1g, gannet-sdk ${_same}")
set(CPACK_DEBIAN_DEVEL_PACKAGE_NAME gannet-dev)
set(CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS "gannet ${_same}")

set(CPACK_GANNET_LIBTORCH ${GANNET_PACKAGE_LIBTORCH})
set(CPACK_GANNET_BUILT_WITH ${LibTorch_ROOT})
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # cpack packs what is built: no tests
set(CPACK_COMPONENT_SDK_DESCRIPTION "Plugins for Gannet: headers, CMake functions and the conformance kit")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Libraries, commands and plugins. LibTorch is expected in ${GANNET_PACKAGE_LIBTORCH}.")
set(CPACK_COMPONENT_DEVEL_DESCRIPTION "Headers and CMake files for programs that train with Gannet, docs and examples")
include(CPack)
cpack_add_component(docs GROUP devel)
cpack_add_component(devel GROUP devel)
