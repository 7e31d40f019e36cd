"""Images of the scene: OpenGL, rays, threads, camera poses."""
